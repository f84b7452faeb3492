"""Calls with typed values: registration of handlers, and calls to other hosts.

    FOLLOW = Method(40, FollowRequest, FollowResponse)
    methods = Methods()
    methods.register(FOLLOW, follow)                        # follow(host, request, body)
    channels = Channels(..., handler=methods.handle)
    methods.use(channels)
    answer, body = await methods.ask(2, FOLLOW, FollowRequest(...), 5.0)

A handler returns (response, body), an awaitable of it, or a `Later`. Requests and responses are Structs or
other types of msgspec, encoded as msgpack, so a type defines the content of a head. A new field has a
default; hosts that do not know it skip it. UUIDs are 16 bytes. A refusal inside an answer is an array of the
fault's name and detail.

Numbers are allotted in ranges. Calls of one range keep their order:

    1-19 the channel itself      40-59 partitions             80-99 and 102-119 homes
    20-39 the cluster            60-79 interest and streams   100-101 STARE, 120-139 events
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError

from .values import Answer


class Later:
    """An answer that its handler gives later, by a callback. It costs no task, unlike an awaitable."""

    def __init__(self) -> None:
        self._outcome: Answer | TreecastError | None = None
        self._then: Callable[[Answer | TreecastError], None] | None = None

    def give(self, outcome: Answer | TreecastError) -> None:
        """Answers, or refuses with the error. Only the first call counts."""
        if self._outcome is None:
            self._outcome = outcome
            if self._then is not None:
                self._then(outcome)

    def then(self, take: Callable[[Answer | TreecastError], None]) -> None:
        """Calls `take` with the outcome, now if it is there."""
        self._then = take
        if self._outcome is not None:
            take(self._outcome)


# (calling host, method, head, body) -> answer. The answer to a notice is not used and may be None. A raised
# TreecastError is raised at the caller. The handler owns head and body; the body is writable.
Handler = Callable[[int, int, bytes, memoryview], Answer | Later | Awaitable[Answer] | None]


Natural = Annotated[int, msgspec.Meta(ge=0)]  # for values from another host

Q = TypeVar("Q")
A = TypeVar("A")
Reply = tuple[A, Buffer]
MessageHandler = Callable[[int, Q, memoryview], Reply[A] | Later | Awaitable[Reply[A]]]


def _write_more(value: Any) -> Any:
    if isinstance(value, TreecastError):
        return value.fault.name, value.detail
    raise NotImplementedError(f"{type(value).__name__} does not cross hosts")


def _read_more(of: type, value: Any) -> Any:
    """Decodes special types. An unknown fault of a newer version becomes INTERNAL."""
    if of is not TreecastError:
        raise NotImplementedError(f"{of.__name__} does not cross hosts")
    name, detail = value
    return TreecastError(Fault[name] if name in Fault.__members__ else Fault.INTERNAL, str(detail))


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_write_more, uuid_format="bytes").encode


class Method(Generic[Q, A]):
    """A method's number, and the types of its request and answer."""

    def __init__(self, number: int, request: type[Q], answer: type[A]) -> None:
        self.number = number
        self.request = request
        self._read_request = msgspec.msgpack.Decoder(request, dec_hook=_read_more).decode
        self._read_answer = msgspec.msgpack.Decoder(answer, dec_hook=_read_more).decode

    def head(self, value: Q | A) -> bytes:
        return _encode(value)

    def asked(self, head: bytes) -> Q:
        """Decodes a request. Raises INVALID_REQUEST if `head` is not one."""
        try:
            return self._read_request(head)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            what = f"the request of method {self.number} cannot be read: {error}"
            raise TreecastError(Fault.INVALID_REQUEST, what) from error

    def answered(self, answer: Answer) -> A:
        """Decodes an answer. Raises INTERNAL if its head is not one of this method."""
        try:
            return self._read_answer(answer.head)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            what = f"the answer is not one of method {self.number}: {error}"
            raise TreecastError(Fault.INTERNAL, what) from error


class Nothing(Struct, frozen=True, array_like=True):
    """An empty request or answer."""


class Echo(Struct, frozen=True, array_like=True):
    text: str


ECHO: Final = Method(1, Echo, Echo)  # returns the head and body of the request


class Caller(Protocol):
    """The part of `Channels` that this module uses."""

    cancellable: set[int]

    def call(
        self, host_id: int, method: int, head: bytes = b"", body: Buffer = b"", *, timeout: float
    ) -> Awaitable[Answer]: ...

    def call_then(
        self,
        host_id: int,
        method: int,
        then: Callable[[Answer | TreecastError], None],
        head: bytes = b"",
        body: Buffer = b"",
        *,
        timeout: float,
    ) -> None: ...

    def notify(self, host_id: int, method: int, head: bytes = b"", body: Buffer = b"") -> bool: ...


class _Entry:
    def __init__(self, method: Method[Any, Any], handler: MessageHandler[Any, Any]) -> None:
        self.method = method
        self.handler = handler


class Methods:
    """The methods of one host, and calls to methods of other hosts."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._cancellable: set[int] = set()
        self._caller: Caller | None = None
        self.register(ECHO, _echo)

    def use(self, caller: Caller) -> None:
        """Sets the channels for `ask` and `tell`."""
        self._caller = caller
        caller.cancellable |= self._cancellable
        self._cancellable = caller.cancellable

    def register(
        self, method: Method[Q, A], handler: MessageHandler[Q, A], *, cancellable: bool = False
    ) -> None:
        """Registers the handler of `method`. `cancellable`: it is cancelled when its caller stops waiting."""
        if method.number in self._entries:
            raise ValueError(f"method {method.number} already has a handler")
        self._entries[method.number] = _Entry(method, handler)
        if cancellable:
            self._cancellable.add(method.number)

    def handle(
        self, host_id: int, method: int, head: bytes, body: memoryview
    ) -> Answer | Later | Awaitable[Answer]:
        """Handles a request, as the handler of `Channels`."""
        entry = self._entries.get(method)
        if entry is None:
            raise TreecastError(Fault.NOT_SUPPORTED, f"unknown method {method}")
        reply = entry.handler(host_id, entry.method.asked(head), body)
        if isinstance(reply, tuple):
            return _in_answer(reply)
        return reply if isinstance(reply, Later) else _Awaited(reply)

    def ask(
        self, host_id: int, method: Method[Q, A], request: Q, timeout: float, body: Buffer = b""
    ) -> Awaitable[tuple[A, memoryview]]:
        """Calls `method` of another host. Fails as `Channels.call` does.

        The position in the order of calls is taken at once, not when the result is awaited.
        """
        answer = self._channels.call(host_id, method.number, method.head(request), body, timeout=timeout)
        return _read_later(answer, method)

    def ask_then(
        self,
        host_id: int,
        method: Method[Q, A],
        request: Q,
        then: Callable[[tuple[A, memoryview] | TreecastError], None],
        timeout: float,
        body: Buffer = b"",
    ) -> None:
        """As `ask`, but calls `then` with the answer or the error, as `Channels.call_then` does."""
        take = partial(_take_answer, method, then)
        self._channels.call_then(host_id, method.number, take, method.head(request), body, timeout=timeout)

    def tell(self, host_id: int, method: Method[Q, A], request: Q, body: Buffer = b"") -> bool:
        """Sends a notice. Returns False if it was not sent."""
        return self._channels.notify(host_id, method.number, method.head(request), body)

    @property
    def _channels(self) -> Caller:
        if self._caller is None:
            raise RuntimeError("Methods.use has not been called")
        return self._caller


def _echo(host_id: int, request: Echo, body: memoryview) -> Reply[Echo]:
    return request, body


async def _read_later(answer: Awaitable[Answer], method: Method[Q, A]) -> tuple[A, memoryview]:
    found = await answer
    return method.answered(found), memoryview(found.body)


def _take_answer(
    method: Method[Q, A],
    then: Callable[[tuple[A, memoryview] | TreecastError], None],
    outcome: Answer | TreecastError,
) -> None:
    if isinstance(outcome, TreecastError):
        then(outcome)
        return
    try:
        found = method.answered(outcome)
    except TreecastError as error:
        then(error)
    else:
        then((found, memoryview(outcome.body)))


class _Awaited(Coroutine[Any, Any, Answer]):
    """Converts the result of an asynchronous handler into an answer.

    This is not an `async def`: if one is cancelled before its first step, its inner coroutine is never
    awaited. Here an exception thrown in reaches the handler itself.
    """

    __slots__ = ("_steps",)

    def __init__(self, reply: Awaitable[Reply[Any]]) -> None:
        self._steps: Generator[Any, Any, Reply[Any]] = reply.__await__()

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


def _in_answer(reply: Reply[Any]) -> Answer:
    return Answer(_encode(reply[0]), reply[1])
