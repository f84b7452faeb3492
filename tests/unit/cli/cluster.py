"""Three daemons of one cluster, their commands, and what can happen to their disks."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.eventually import until

from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.tokens import given_token

FABRIC = ("--fabric", "127.0.0.1:0")


class Cluster:
    """Three daemons, host-1 with the coordinator, and commands of one of them."""

    def __init__(self, start_daemon, command, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._command = command
        self._monkeypatch = monkeypatch
        self._folder = folder
        first = start_daemon("--name", "host-1", *FABRIC)
        self.token = folder / "token"
        shutil.copy(first.data / "join-token", self.token)
        join = ("--join", first.control, "--join-token", f"@{self.token}")
        self.hosts: dict[str, DaemonProcess] = {"host-1": first}
        for name in ("host-2", "host-3"):
            self.hosts[name] = start_daemon("--name", name, *FABRIC, *join)

    def ran(self, host: str, *words: str, stdin: bytes = b"") -> Any:
        daemon = self.hosts[host]
        self._monkeypatch.setenv("TREECAST_CONTROL", daemon.control)
        self._monkeypatch.setenv("TREECAST_KAFKA", daemon.kafka)
        return self._command(*words, stdin=stdin)

    def produce(self, topic: str, partition: int, *values: str, host: str = "host-3") -> None:
        lines = "".join(f"{value}\n" for value in values).encode()
        ran = self.ran(host, "produce", topic, "--partition", str(partition), stdin=lines)
        assert ran.code == 0, ran.err

    def consume(self, host: str, topic: str, partition: int, count: int) -> list[str]:
        words = (
            "consume",
            topic,
            "--beginning",
            "--partition",
            str(partition),
            "-n",
            str(count),
            "--idle",
            "20",
        )
        return self.ran(host, *words).lines

    def lose_disk(self, host: str) -> None:
        """Kills the daemon, removes its directory, and waits until its lease expires."""
        daemon = self.hosts[host]
        daemon.kill()
        shutil.rmtree(daemon.data)
        if host != "host-1":
            self.wait_away(host)

    def presences(self) -> list[str]:
        return [host["presence"] for host in self.ran("host-1", "status", "--json").json["hosts"]]

    def wait_away(self, host: str) -> None:
        def away() -> bool:
            found = self.ran("host-1", "status", "--json").json["hosts"]
            return next(one["presence"] for one in found if one["name"] == host) == "away"

        until(away)

    def standing(self, topic: str, partition: int, host: str = "host-1") -> dict[str, Any]:
        found = self.ran(host, "partitions", "list", topic, "--json").json
        return next(one for one in found if one["partition"] == partition)

    def copied(self, topic: str, partition: int, end: int, host: str = "host-3") -> bool:
        return self.standing(topic, partition, host)["end"] == end

    def recorded(self, topic: str, *ends: int) -> bool:
        """Returns whether the coordinator has recorded that the partitions, in order, ended there and are
        quiet."""
        told = self.ran("host-1", "topics", "describe", topic, "--json").json
        topic_id = uuid.UUID(told["topic"]["topic_id"])
        return asyncio.run(self._recorded(topic_id.bytes)) == dict(enumerate(ends))

    async def _recorded(self, topic_id: bytes) -> dict[int, int]:
        client = CoordinatorClient(self.hosts["host-1"].control, given_token(f"@{self.token}"))
        try:
            return {one.partition: one.end for one in await client.get_ends(topic_id) if one.quiet}
        finally:
            await client.close()

    def restore(self, host: str, copy: Path) -> None:
        """Puts the directory of a daemon that is down back to a copy, and waits for the end of its lease."""
        daemon = self.hosts[host]
        shutil.rmtree(daemon.data)
        shutil.copytree(copy, daemon.data, copy_function=shutil.copy2)
        if host != "host-1" and self.presence(host) == "attached":
            self.wait_away(host)

    def presence(self, host: str) -> str:
        found = self.ran("host-1", "status", "--json").json["hosts"]
        return str(next(one["presence"] for one in found if one["name"] == host))
