"""What the harness asks of a server that it measures."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from .process import Memory, cpu_seconds, memory


class Peer(abc.ABC):
    """A server: started on an empty data directory, measured, stopped.

    `name` stands in reports; one Peer is started and stopped once per round.
    """

    name: str
    is_floor = False  # a bare loop, whose start-up and memory mean nothing

    def prepare(self) -> None:  # noqa: B027  (most peers need nothing)
        """What is done once and not measured: fetching, building."""

    @abc.abstractmethod
    def start(self) -> float:
        """Starts on an empty data directory; returns the seconds from exec to the first useful answer."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stops it and removes its data."""

    @abc.abstractmethod
    def pids(self) -> list[int]:
        """All of its processes."""

    @abc.abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Version and settings, as the report prints them."""

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids())

    def memory(self) -> Memory:
        return memory(self.pids())


class Server(Peer):
    """A peer that clients connect to."""

    @property
    @abc.abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port."""
