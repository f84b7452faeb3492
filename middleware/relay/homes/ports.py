"""What homes need of the coordinator and of other hosts, as Protocols, and the values that go between."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from treecast.middleware.broker.homes import HomeName
from treecast.middleware.fabric.channel import Method
from treecast.middleware.model.errors import TreecastError


class HomeAt(Struct, frozen=True):
    """Which host is a home, and in which epoch."""

    host_id: int
    epoch: int


class StateWrite(Struct, frozen=True):
    """Items of one home for the coordinator's store, None removes; `forget`: the home and all its items."""

    name: HomeName
    epoch: int
    items: Mapping[bytes, bytes | None]
    forget: bool = False


class Coordinator(Protocol):
    """The coordinator's calls about homes. All raise COORDINATOR_UNAVAILABLE where it does not answer."""

    async def ask(self, name: HomeName) -> HomeAt:
        """Where the home is. One that has none, or whose host is away for long, is given to who asks."""

    async def put(self, writes: Sequence[StateWrite]) -> Mapping[int, TreecastError]:
        """The writes that were refused, by their place; all others are on its disk."""

    async def get(self, name: HomeName, epoch: int) -> dict[bytes, bytes]:
        """All items of a home of this host; NOT_COORDINATOR where it is not that."""

    async def producer_ids(self, count: int) -> range:
        """Ids that nobody had before."""


Q = TypeVar("Q")
A = TypeVar("A")


class Calls(Protocol):
    """Calls to other hosts: `fabric.channel.Methods`."""

    def ask(
        self, host_id: int, method: Method[Q, A], request: Q, timeout: float
    ) -> Awaitable[tuple[A, memoryview]]:
        """Raises the refusal of the host that is asked, or ChannelError where the call failed on its way."""


class MirrorSettings(Struct, frozen=True):
    """Times are seconds, sizes bytes. Of writes to the coordinator's store. What one call carries is below
    the coordinator's own bounds."""

    patience: float = 2.0  # a write waits as long for a coordinator that does not answer
    call: float = 2.0  # one call may take as long
    pause: float = 5.0  # the longest between attempts
    homes: int = 1000
    bytes: int = 1 << 20


class HomeSettings(Struct, frozen=True):
    mirror: MirrorSettings = MirrorSettings()
    ask_again: float = 1.0  # between questions for a home whose host is away
    tidy: float = 300.0  # between looks for homes of which there is nothing
    connect: float = 2.0  # a call waits as long for a connection to its host


DEFAULTS = HomeSettings()
