"""gRPC around a service: admission on the request's bytes, then the call; refusals become statuses.

To gRPC all calls take a stream of requests, so that `call_bodies` decides when the one request is read; on
the wire that is the same. Requests arrive as bytes because the signature covers the bytes, and so that an
invalid message is refused as the caller's fault. Writes to streams have a time limit: a client that does not
read is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .admission import Refused
from .call_bodies import CallBodies
from .rpc import FAULT_KEY, Method, methods, status_code

_LONGEST_DETAIL = 1000  # characters: a status is sent in headers
_USUAL = {"stale", "standby"}  # reasons that are no news
_NOT_ADMITTED = {"unsigned", "malformed", "key", "stale", "replayed"}

_log = Log(__name__)


class CallCounters(Struct):
    """Counters for metrics and `treecast status`. `refused` is by reason or fault name."""

    calls: dict[str, int] = {}
    refused: dict[str, int] = {}
    watchers: int = 0
    watchers_dropped: int = 0


class Admits(Protocol):
    """The admission of calls: `admission.Admission`, or a daemon's own."""

    def trusts(self, metadata: Mapping[str, str], peer: str) -> bool:
        """Whether a call seems to come from a holder of the key, before its request is read."""

    def admit(self, metadata: Mapping[str, str], method: str, body: bytes, now: float, peer: str) -> None:
        """Raises Refused. `peer`: the caller, as gRPC names it."""

    def seal(self, metadata: Mapping[str, str], method: str, number: int, body: bytes) -> bytes: ...

    def proof_of(
        self, metadata: Mapping[str, str], method: str, fault: str, detail: str
    ) -> tuple[tuple[str, str], ...]: ...


def _count(counts: dict[str, int], name: str) -> int:
    counts[name] = counts.get(name, 0) + 1
    return counts[name]


class Calls:
    """The handlers of one service."""

    def __init__(
        self,
        service: ServiceDescriptor,
        serving: Callable[[Method], Callable[[Any], Any]],
        admission: Admits,
        clock: Callable[[], float],
        stall_seconds: float,
    ) -> None:
        """`serving` returns what answers a method at present: a coroutine function, or for a stream a
        generator function. It raises the refusal if nobody does.
        """
        self.counters = CallCounters()
        self._serving = serving
        self._admission = admission
        self._clock = clock
        self._stall = stall_seconds
        self.bodies = CallBodies()
        streams = {method.name for method in service.methods if method.server_streaming}
        self.handler = grpc.method_handlers_generic_handler(
            service.full_name,
            {
                method.name: (
                    grpc.stream_stream_rpc_method_handler(self._stream(method))
                    if method.name in streams
                    else grpc.stream_unary_rpc_method_handler(self._unary(method))
                )
                for method in methods(service)
            },
        )

    def _unary(self, method: Method) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def answer(_: Any, context: Any) -> bytes:
            try:
                request = await self._request(method, context)
                call: Callable[[Any], Awaitable[Message]] = self._serving(method)
                response = await call(request)
                metadata = _texts(context.invocation_metadata())
                return self._admission.seal(metadata, method.path, 0, response.SerializeToString())
            except Exception as error:
                refusal = self._refusal(method.name, error)
            await self._abort(context, method, refusal)
            raise AssertionError("abort returned")

        return answer

    def _stream(self, method: Method) -> Callable[[Any, Any], Awaitable[None]]:
        async def answer(_: Any, context: Any) -> None:
            try:
                request = await self._request(method, context)
                call: Callable[[Any], AsyncGenerator[bytes, None]] = self._serving(method)
                metadata, number = _texts(context.invocation_metadata()), 0
                self.counters.watchers += 1
                try:
                    async with aclosing(call(request)) as messages:
                        async for message in messages:
                            sealed = self._admission.seal(metadata, method.path, number, message)
                            await self._write(context, sealed)
                            number += 1
                finally:
                    self.counters.watchers -= 1
                return
            except Exception as error:
                refusal = self._refusal(method.name, error)
            await self._abort(context, method, refusal)

        return answer

    async def _write(self, context: Any, message: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall):
                await context.write(message)
        except TimeoutError:
            self.counters.watchers_dropped += 1
            raise TreecastError(
                Fault.TIMED_OUT, f"nothing was read for {self._stall:g} s: watch again from the last revision"
            ) from None

    async def _request(self, method: Method, context: Any) -> Message:
        _count(self.counters.calls, method.name)
        metadata = _texts(context.invocation_metadata())
        body = await self.bodies.read(context, self._admission.trusts(metadata, context.peer()))
        self._admission.admit(metadata, method.path, body, self._clock(), context.peer())
        try:
            return method.request.FromString(body)
        except DecodeError as error:
            raise TreecastError(
                Fault.INVALID_REQUEST, f"the request is not a {method.request.DESCRIPTOR.name}: {error}"
            ) from error

    def _refusal(self, name: str, error: Exception) -> TreecastError:
        if not isinstance(error, TreecastError):
            _log.error("call failed", trace=error, call=name)
            error = TreecastError(Fault.INTERNAL)
        reason = error.reason if isinstance(error, Refused) else error.fault.name
        count = _count(self.counters.refused, reason)
        if isinstance(error, Refused) and reason not in _USUAL and count & (count - 1) == 0:
            _log.warning(
                "call refused", call=name, reason=reason, count=count, error=error
            )  # 1st, 2nd, 4th, ...
        return error

    async def _abort(self, context: Any, method: Method, error: TreecastError) -> None:
        code, detail = status_code(error.fault), error.detail[:_LONGEST_DETAIL]
        metadata: tuple[tuple[str, str], ...] = ((FAULT_KEY, error.fault.name),)
        asked = _texts(context.invocation_metadata())
        metadata += self._admission.proof_of(asked, method.path, error.fault.name, detail)
        if isinstance(error, Refused):
            metadata += error.metadata
            if error.reason in _NOT_ADMITTED:
                code = grpc.StatusCode.UNAUTHENTICATED
        await context.abort(code, detail, metadata)


def _texts(metadata: Any) -> Mapping[str, str]:
    """Returns the text entries; the last value of a repeated key counts."""
    return {key: value for key, value in metadata or () if isinstance(value, str)}
