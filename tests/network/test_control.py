"""The control and admin addresses as other hosts see them: everybody may read, changes need the token."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

from treecast.middleware.dataplane.lab.lab import Lab

PAIR = """
[hosts.alpha]
[hosts.beta]
[[links]]
between = ["alpha", "beta"]
"""
PATIENCE = 90.0  # seconds until a test gives up; nothing is asserted about it
TREECAST = (sys.executable, "-m", "treecast.middleware.cli")
REFUSED = "needs the daemon's token: give --token @FILE"
FETCH = """
import sys, urllib.error, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Host": sys.argv[2]} if sys.argv[2:] else {})
try:
    print(urllib.request.urlopen(asked, timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def start(made: Lab, data: Path, *more: str) -> None:
    """Starts a daemon on alpha whose control and admin addresses other hosts can reach."""
    ip = made.ipv4("alpha")
    command = [
        *TREECAST,
        "up",
        "--name",
        "alpha-1",
        "--data",
        str(data),
        "--mqtt",
        "off",
        "--stare",
        "off",
        "--amqp",
        "off",
    ]
    command += ["--control", f"{ip}:7671", "--admin", f"{ip}:7670", *more]
    process = made.start("alpha", *command)
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE)[0], "nothing was printed"
    assert process.stdout.readline().startswith(b"ready ")


def ask(made: Lab, host: str, *command: str) -> tuple[int, str]:
    """Returns the exit code and all output of a command on `host`."""
    process = made.start(host, *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, said.decode()


@pytest.mark.parametrize("joined", [False, True])
def test_another_host_changes_nothing_without_the_token(lab: StartLab, tmp_path: Path, joined: bool) -> None:
    made = lab(PAIR)
    ip, data = made.ipv4("alpha"), tmp_path / "data"
    start(made, data, *(("--fabric", f"{ip}:7672") if joined else ()))
    there = ("--control", f"{ip}:7671")
    token = ("--token", f"@{data / ('join-token' if joined else 'control-token')}")

    # On its own host, by the network address: the kernel reports the connection's owner.
    assert ask(made, "alpha", *TREECAST, "topics", "create", "orders", *there)[0] == 0

    # From the other host everybody may read.
    code, listed = ask(made, "beta", *TREECAST, "topics", "list", "--json", *there)
    assert code == 0
    assert [topic["name"] for topic in json.loads(listed)] == ["orders"]

    for change in (
        ("topics", "delete", "orders", "--yes"),
        ("topics", "create", "t"),
        ("topics", "alter", "orders", "--config", "retention.ms=1"),
        ("topics", "grow", "orders", "2"),
        ("groups", "delete", "g", "--yes"),
        ("groups", "reset", "g", "--topic", "orders", "--earliest"),
    ):
        code, said = ask(made, "beta", *TREECAST, *change, *there)
        assert code == 1
        assert REFUSED in said.replace("\n", " ")

    code, said = ask(made, "beta", *TREECAST, "topics", "delete", "orders", "--yes", *there, *token)
    assert code == 0, said
    assert ask(made, "beta", *TREECAST, "topics", "list", "--json", *there)[1].strip() == "[]"


def test_a_page_under_a_foreign_name_gets_nothing(lab: StartLab, tmp_path: Path) -> None:
    made = lab(PAIR)
    start(made, tmp_path / "data", "--admin-names", "metrics.example.org")
    url = f"http://{made.ipv4('alpha')}:7670/status"
    for host in ((), ("alpha-1:7670",), ("metrics.example.org",), ("localhost",)):
        assert ask(made, "beta", sys.executable, "-c", FETCH, url, *host) == (0, "200\n")
    said = ask(made, "beta", sys.executable, "-c", FETCH, url, "rebound.example")[1]
    assert said.startswith("421 ")
    assert "--admin-names" in said
