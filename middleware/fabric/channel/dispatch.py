"""Calls by typed messages: who handles which method, and how one asks.

    methods = Methods()
    methods.register(PartitionMethod.FOLLOW, pb.FollowRequest, follow)     # follow(host, request, body)
    channels = Channels(..., handler=methods.handle)
    methods.use(channels)
    answer, body = await methods.ask(2, PartitionMethod.FOLLOW, pb.FollowRequest(...), pb.FollowResponse, 5.0)

A handler returns (response, body) or an awaitable of that; where there is nothing to say, an empty
message. Numbers are allotted in ranges, whose calls keep their order:

    1-19 the channel itself      40-59 partitions             80-99 homes
    20-39 the cluster            60-79 interest and streams   100-101 STARE, 120-139 events
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from treecast.middleware.api.v1.peer_pb2 import Echo
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError

from .values import Answer


class MethodNumber(enum.IntEnum):
    """The channel's own. Other ranges have enumerations of their own where they are handled."""

    ECHO = 1


_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)
Reply = tuple[Message, Buffer]
MessageHandler = Callable[[int, _Request, memoryview], Reply | Awaitable[Reply]]


class Caller(Protocol):
    """`Channels`, as far as it is needed here."""

    cancellable: set[int]

    def call(
        self, host_id: int, method: int, head: bytes = b"", body: Buffer = b"", *, timeout: float
    ) -> Awaitable[Answer]: ...

    def notify(self, host_id: int, method: int, head: bytes = b"", body: Buffer = b"") -> bool: ...


class _Entry:
    def __init__(self, request: type[Message], handler: Callable[..., Reply | Awaitable[Reply]]) -> None:
        self.request = request
        self.handler = handler


class Methods:
    """The table of methods of one host, and the way to call those of others."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._cancellable: set[int] = set()
        self._caller: Caller | None = None
        self.register(MethodNumber.ECHO, Echo, _echo)

    def use(self, caller: Caller) -> None:
        """The channels that `ask` and `tell` go through."""
        self._caller = caller
        caller.cancellable |= self._cancellable
        self._cancellable = caller.cancellable

    def register(
        self,
        method: enum.IntEnum,
        request: type[_Request],
        handler: MessageHandler[_Request],
        *,
        cancellable: bool = False,
    ) -> None:
        """`handler` answers `method`. `cancellable`: it may be cancelled when its caller does not wait."""
        if method.value in self._entries:
            raise ValueError(f"method {method!r} has a handler already")
        self._entries[method.value] = _Entry(request, handler)
        if cancellable:
            self._cancellable.add(method.value)

    def handle(self, host_id: int, method: int, head: bytes, body: memoryview) -> Answer | Awaitable[Answer]:
        """The handler for `Channels`."""
        entry = self._entries.get(method)
        if entry is None:
            raise TreecastError(Fault.NOT_SUPPORTED, f"method {method} is not known here")
        try:
            request = entry.request.FromString(head)
        except DecodeError as error:
            raise TreecastError(
                Fault.INVALID_REQUEST, f"not a {entry.request.DESCRIPTOR.name}: {error}"
            ) from error
        reply = entry.handler(host_id, request, body)
        if isinstance(reply, tuple):
            return _in_answer(reply)
        return _Later(reply)

    def ask(
        self,
        host_id: int,
        method: enum.IntEnum,
        request: Message,
        response: type[_Response],
        timeout: float,
        body: Buffer = b"",
    ) -> Awaitable[tuple[_Response, memoryview]]:
        """Calls another host's `method`; `Channels.call` says how it fails.

        The call takes its place in the order at once, not when it is awaited.
        """
        answer = self._channels.call(host_id, method, request.SerializeToString(), body, timeout=timeout)
        return _read_later(answer, response)

    def tell(self, host_id: int, method: enum.IntEnum, request: Message, body: Buffer = b"") -> bool:
        """A notice; False where it was not sent."""
        return self._channels.notify(host_id, method, request.SerializeToString(), body)

    @property
    def _channels(self) -> Caller:
        if self._caller is None:
            raise RuntimeError("Methods.use has not been called")
        return self._caller


def read_answer(answer: Answer, response: type[_Response]) -> tuple[_Response, memoryview]:
    """An answer's message and body. INTERNAL where the head is no such message."""
    try:
        return response.FromString(answer.head), memoryview(answer.body)
    except DecodeError as error:
        raise TreecastError(
            Fault.INTERNAL, f"the answer is no {response.DESCRIPTOR.name}: {error}"
        ) from error


def _echo(host_id: int, request: Echo, body: memoryview) -> Reply:
    return request, body


async def _read_later(answer: Awaitable[Answer], response: type[_Response]) -> tuple[_Response, memoryview]:
    return read_answer(await answer, response)


class _Later(Coroutine[Any, Any, Answer]):
    """A handler's reply as an answer, once it is there.

    Not an `async def`: one that is cancelled before its first step never reaches the coroutine inside it,
    which then was never awaited. So what is thrown into this one goes into the handler itself.
    """

    __slots__ = ("_steps",)

    def __init__(self, reply: Awaitable[Reply]) -> None:
        self._steps: Generator[Any, Any, Reply] = reply.__await__()

    def __await__(self) -> Generator[Any, Any, Answer]:
        return _in_answer((yield from self._steps))

    def send(self, value: Any) -> Any:
        try:
            return self._steps.send(value)
        except StopIteration as done:
            raise StopIteration(_in_answer(done.value)) from None

    def throw(self, *error: Any) -> Any:
        try:
            return self._steps.throw(*error)
        except StopIteration as done:
            raise StopIteration(_in_answer(done.value)) from None

    def close(self) -> None:
        self._steps.close()


def _in_answer(reply: Reply) -> Answer:
    return Answer(reply[0].SerializeToString(), reply[1])
