"""`treecast bench fanout` on a host with two others that read the topic."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.cli.eventually import until

from treecast.middleware.daemon.process import DaemonProcess

FABRIC = ("--fabric", "127.0.0.1:0", "--mqtt", "off")


@pytest.fixture
def hosts(start_daemon, tmp_path: Path) -> list[DaemonProcess]:
    first = start_daemon("--name", "a", *FABRIC)
    token = shutil.copy(first.data / "join-token", tmp_path / "token")
    join = ("--join", first.control, "--join-token", f"@{token}")
    return [first, *[start_daemon("--name", name, *FABRIC, *join) for name in ("b", "c")]]


@pytest.fixture
def readers(hosts: list[DaemonProcess]) -> Iterator[Callable[[str], None]]:
    """Returns `readers(topic)`: both other hosts read the topic until the test is over."""
    running: list[subprocess.Popen[bytes]] = []

    def read(topic: str) -> None:
        for daemon in hosts[1:]:
            words = [sys.executable, "-m", "treecast.middleware.cli", "consume", topic]
            environment = {**os.environ, "TREECAST_KAFKA": daemon.kafka}
            running.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL))

    yield read
    for one in running:
        one.kill()
        one.wait()


def test_fanout_says_how_each_host_got_the_topic(
    hosts: list[DaemonProcess], readers, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREECAST_CONTROL", hosts[0].control)
    monkeypatch.setenv("TREECAST_KAFKA", hosts[0].kafka)
    words = ("bench", "fanout", "--topic", "t", "--records", "20000", "--size", "200")
    assert command("topics", "create", "t", "--leader", "a").code == 0
    refused = command(*words)
    assert refused.code == 1
    assert "no other host reads t: run `treecast consume t" in refused.err
    readers("t")
    until(lambda: [len(one["accounts"]) for one in command("streams", "t", "--json").json] == [2])
    found = command(*words, "--json").json
    records = found["records"]
    assert 19_000 < records <= 20_000  # whole batches
    assert found["payload"] > records * 200
    assert [one["host"] for one in found["receivers"]] == ["b", "c"]
    for one in found["receivers"]:
        assert one["live"] + one["repaired"] + one["replayed"] == records
        assert one["lost"] == 0
        assert 0 < one["seconds"] <= found["seconds"]
    with_payload = sum(found["sent"].get(purpose, 0) for purpose in ("data", "repair", "replay"))
    assert found["copies"] == pytest.approx(with_payload / found["payload"])
    assert found["sent"]["data"] >= found["payload"]
    table = command(*words)
    assert table.lines[0].split()[:4] == ["host", "live", "repaired", "replayed"]
    assert any(line.startswith("copies per payload") for line in table.lines)
