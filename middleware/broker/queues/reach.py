"""`Reach`: the interface of queues to other hosts, and the values that cross. The relay implements it.

A standalone host has none. On a joined host, `joined.JoinedQueues` uses it, and is called back with what
other hosts have said. Runs cross as `message.encode_run` writes them.

| what        | way                                   | how                                              |
| ----------- | ------------------------------------- | ------------------------------------------------ |
| definitions | to the coordinator, then to all hosts | known everywhere before the answer: `define`     |
| messages    | from their origin to the queue's home | stored at the origin until the home has: `carry` |
| calls       | from a consumer's host to the home    | answered: `call`                                 |
| notices     | both                                  | in order, not answered: `tell`                   |
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
from msgspec import Struct

from .stream_start import StreamStart

if TYPE_CHECKING:
    from .joined import JoinedQueues

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Defined(Struct, frozen=True):
    """A definition as every host knows it. `host` set it: the home of a queue. See `shared`."""

    key: str
    host: int
    value: bytes


class Write(Struct, frozen=True):
    """A change of a definition; None removes it. An existing one with another value stays unless
    `replace`."""

    key: str
    value: bytes | None
    replace: bool = False


class Ask(enum.IntEnum):
    """A question to the home of a queue."""

    COUNT = 1
    PURGE = 2
    DELETE = 3
    GET = 4
    CONSUME = 5


class QueueCall(Struct, frozen=True, array_like=True):
    """A call about one queue. `consumer`: the caller's number of a consumer, or of the taker of one message
    (`GET`); 0 for other calls."""

    ask: Ask
    vhost: str
    queue: bytes
    consumer: _Natural = 0
    no_ack: bool = False
    exclusive: bool = False
    priority: int = 0
    if_unused: bool = False
    if_empty: bool = False
    tag: bytes = b""
    start: StreamStart | None = None  # of a consumer of a stream


class QueueAnswer(Struct, frozen=True, array_like=True):
    """The answer to a call. `reason`: the name of a `Reason` if it is refused. `messages`, `consumers`:
    counts; of purge and delete, `messages` were removed. The body of a successful GET is one delivery."""

    reason: str = ""
    detail: str = ""
    messages: _Natural = 0
    consumers: _Natural = 0


class Say(enum.IntEnum):
    """The content of a notice. The first three go to the home, the others come from it."""

    GRANT = 1  # the consumer takes deliveries up to a total of `count`
    CANCEL = 2  # `seen`, `how`: see `QueueNotice`; of a `GET` without an answer: its message goes back
    SETTLE = 3  # `how`: one of `Settling`; `count` messages from position `first` on
    DELIVER = 4  # the body has deliveries
    GONE = 5  # the queue was deleted


class Settling(enum.IntEnum):
    ACK = 0
    REJECT = 1
    REQUEUE = 2
    FAIL = 3  # returned because the delivery failed


class QueueNotice(Struct, frozen=True, array_like=True):
    """A notice about a consumer of the caller (to the home) or of the called host (from the home), by the
    number in its `QueueCall`.

    `more`: the next notice belongs to it, and nobody gets messages before that. With CANCEL, `seen` messages
    have come to the consumer in total (-1: not said), and what it was sent beyond them goes back to the
    queue; with `how` FAIL its channel ends, and so does all that it has not settled.
    """

    say: Say
    consumer: _Natural
    count: _Natural = 0
    first: _Natural = 0
    how: Settling = Settling.ACK
    more: bool = False
    seen: int = -1


Managed = Callable[[int, bytes], Awaitable[bytes]]  # the caller's host, and its request


class OtherHosts(Protocol):
    """The other hosts of the cluster, for management calls."""

    def hosts(self) -> Collection[int]:
        """Returns all of them that have queues, reachable or not."""

    def up(self) -> Collection[int]:
        """Returns the hosts that can be called now."""

    def name(self, host: int) -> str:
        """Returns the host's name."""

    async def manage(self, host: int, request: bytes) -> bytes:
        """Makes a host answer a management request. Raises TreecastError if it does not."""

    def serve(self, managed: Managed) -> None:
        """Makes `managed` answer the requests of other hosts from now on."""


class Reach(OtherHosts, Protocol):
    """The calls of queues to other hosts. None of them waits; outcomes are told to `JoinedQueues`."""

    @property
    def host(self) -> int:
        """This host's id, never 0."""

    @property
    def run(self) -> int:
        """The number of this run of the host, higher than that of any earlier run."""

    def join(self, queues: JoinedQueues) -> None:
        """Calls `queues` back from now on, after `JoinedQueues.begin`."""

    async def leave(self, seconds: float) -> None:
        """Ends that, once definitions that were changed are decided, but within `seconds`."""

    async def known(self, version: int) -> None:
        """Returns when the version of the definitions is known to other hosts, as answers to it may be sent
        (`JoinedQueues.released`)."""

    def define(self, writes: Sequence[Write]) -> None:
        """Changes definitions, in order. For each call, in order, `JoinedQueues.released` is called when all
        reachable hosts know the changes or were waited for in vain, and then `decided`, once the coordinator
        has decided and this host has seen the outcome."""

    def call(self, host: int, number: int, call: QueueCall) -> None:
        """Calls a host. `JoinedQueues.answered` is called with `number`, also if the call failed."""

    def tell(self, host: int, notice: QueueNotice, body: bytes = b"") -> None:
        """Sends a notice. It is lost if the connection is; `JoinedQueues.host_down` is called in this
        case.
        """

    def carry(self, host: int, number: int, body: bytes) -> None:
        """Sends messages to the home of their queues. `JoinedQueues.carried` is called with `number` when the
        home has stored them, or the call failed."""
