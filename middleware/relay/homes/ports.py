"""Protocols for the coordinator and other hosts as homes use them, and the values exchanged."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from treecast.middleware.broker.homes import HomeName
from treecast.middleware.fabric.channel import Method
from treecast.middleware.model.errors import TreecastError


class HomeAt(Struct, frozen=True):
    """The host of a home, and its epoch."""

    host_id: int
    epoch: int


class StateWrite(Struct, frozen=True):
    """Items of one home for the coordinator's store. None removes an item; `forget` removes the home."""

    name: HomeName
    epoch: int
    items: Mapping[bytes, bytes | None]
    forget: bool = False


class Coordinator(Protocol):
    """Calls to the coordinator about homes. All raise COORDINATOR_UNAVAILABLE if it does not answer."""

    async def ask(self, name: HomeName) -> HomeAt:
        """Returns the home. The caller becomes the home if there is none or its host is away for long."""

    async def put(self, writes: Sequence[StateWrite]) -> Mapping[int, TreecastError]:
        """Returns the refused writes by index. All others are on the coordinator's disk."""

    async def get(self, name: HomeName, epoch: int) -> dict[bytes, bytes]:
        """Returns all items of a home of this host. Raises NOT_COORDINATOR if it is not the home."""

    async def producer_ids(self, count: int) -> range:
        """Returns unused ids."""


Q = TypeVar("Q")
A = TypeVar("A")


class Calls(Protocol):
    """Calls to other hosts: `fabric.channel.Methods`."""

    def ask(
        self, host_id: int, method: Method[Q, A], request: Q, timeout: float
    ) -> Awaitable[tuple[A, memoryview]]:
        """Raises the refusal of the called host, or ChannelError if the call failed."""


class MirrorSettings(Struct, frozen=True):
    """Settings for writes to the coordinator's store. Times in seconds, sizes in bytes. The size of one call
    is below the coordinator's own bounds."""

    patience: float = 2.0  # longest wait of a write for the coordinator
    call: float = 2.0  # time-out of one call
    pause: float = 5.0  # longest pause between attempts
    homes: int = 1000
    bytes: int = 1 << 20


class HomeSettings(Struct, frozen=True):
    mirror: MirrorSettings = MirrorSettings()
    ask_again: float = 1.0  # between questions for a home whose host is away
    tidy: float = 300.0  # between searches for empty homes
    connect: float = 2.0  # longest wait of a call for a connection


DEFAULTS = HomeSettings()
