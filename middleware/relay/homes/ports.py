"""Protocols for the coordinator and other hosts as homes use them, and the values exchanged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from treecast.middleware.broker.homes import HomeName
from treecast.middleware.fabric.channel import Method
from treecast.middleware.model.errors import Fault, TreecastError

VERSION = b"v"  # the key of a home's version among its items
_encode_version = msgspec.msgpack.Encoder().encode


class HomeAt(Struct, frozen=True):
    """The host of a home, and its epoch."""

    host_id: int
    epoch: int


_TAKEOVERS = 16  # that a version remembers


class Version(Struct, array_like=True, frozen=True):
    """How far a home's items have come: `count` writes since its beginning, at all hosts that were its home.

    `takeovers`: the last ones and the beginning, as (epoch, count when it began), ascending.
    """

    count: int = 0
    takeovers: tuple[tuple[int, int], ...] = ()

    def covers(self, epoch: int, count: int) -> bool:
        """Returns whether these items include the write `count` that the home of `epoch` made."""
        later = [at for began, at in self.takeovers if began > epoch]
        return (later[0] if later else self.count) >= count

    def taken_over(self, epoch: int) -> Version:
        """Returns the version at the beginning of `epoch`."""
        if any(began == epoch for began, _ in self.takeovers):
            return self
        return Version(self.count, (*self.takeovers, (epoch, self.count))[-_TAKEOVERS:])


class StoredHome(Struct, frozen=True):
    """The coordinator's items of one home."""

    items: Mapping[bytes, bytes]
    version: Version = Version()

    @classmethod
    def of(cls, found: Mapping[bytes, bytes]) -> StoredHome:
        """Takes the version out of the items as they are stored. Raises INTERNAL for a bad one."""
        items = dict(found)
        version = items.pop(VERSION, None)
        try:
            return cls(items, Version() if version is None else _decode_version(version))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TreecastError(
                Fault.INTERNAL, f"the coordinator's version of a home cannot be read: {error}"
            ) from error


class Alone(Struct, frozen=True):
    """An item that was accepted without the coordinator's store. `count`: of its write; -1 if unknown."""

    value: bytes | None
    count: int = -1


class StateWrite(Struct, frozen=True):
    """Items of one home for the coordinator's store. None removes an item; `forget` removes the home.

    `version`: of the home with these items; None if more of them follow.
    """

    name: HomeName
    epoch: int
    items: Mapping[bytes, bytes | None]
    forget: bool = False
    version: Version | None = None

    def stored(self) -> dict[bytes, bytes | None]:
        """Returns the items with the version among them, as they are stored."""
        if self.forget:
            return {}
        version = {} if self.version is None else {VERSION: _encode_version(self.version)}
        return {**self.items, **version}


class Coordinator(Protocol):
    """Calls to the coordinator about homes. All raise COORDINATOR_UNAVAILABLE if it does not answer."""

    @property
    def answers(self) -> bool:
        """Whether this host is attached, and the coordinator answered last."""

    @property
    def directory_is_old(self) -> bool:
        """Whether the coordinator knows another directory of this host, or a later state of this one."""

    def when_old(self, call: Callable[[], None]) -> None:
        """Calls `call` when an attach during the run finds this host's directory old."""

    async def ask(self, name: HomeName) -> HomeAt:
        """Returns the home. The caller becomes the home if there is none or its host is away for long."""

    async def put(self, writes: Sequence[StateWrite]) -> Mapping[int, TreecastError]:
        """Returns the refused writes by index. All others are on the coordinator's disk."""

    async def get(self, name: HomeName, epoch: int) -> StoredHome:
        """Returns all items of a home of this host. Raises NOT_COORDINATOR if it is not the home.

        `epoch` 0: of any home.
        """

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
_decode_version = msgspec.msgpack.Decoder(Version).decode
