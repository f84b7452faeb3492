"""gRPC from descriptors: servers and clients of `proto/treecast/v1` without generated stubs.

A refusal crosses as a status: the code below for its fault, the detail as message, and the fault's name
in the trailing metadata, from which a client makes the same `TreecastError` again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

FAULT_KEY = "treecast-fault"
# No other process may share the port, and no proxy stands between a host and its own daemon.
OPTIONS = (("grpc.so_reuseport", 0), ("grpc.enable_http_proxy", 0))
# Of servers that other hosts call: finds those that went without a word.
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)
MAX_CALLS = 20_000  # at once; what is beyond is refused by gRPC

_log = logging.getLogger(__name__)
_Code = grpc.StatusCode

_NOT_FOUND = {Fault.UNKNOWN_TOPIC, Fault.UNKNOWN_TOPIC_ID, Fault.GROUP_NOT_FOUND, Fault.UNKNOWN_MEMBER}
_UNAVAILABLE = {
    Fault.LEADER_UNAVAILABLE,
    Fault.COORDINATOR_UNAVAILABLE,
    Fault.COORDINATOR_LOADING,
    Fault.NOT_LEADER,
    Fault.NOT_COORDINATOR,
}
_PRECONDITION = {
    Fault.GROUP_NOT_EMPTY,
    Fault.GROUP_SUBSCRIBED,
    Fault.REBALANCE_IN_PROGRESS,
    Fault.UNSTABLE_OFFSETS,
    Fault.CONCURRENT_TRANSACTIONS,
    Fault.INVALID_TRANSACTION_STATE,
    Fault.POLICY_VIOLATION,
}
_OTHERS = {
    Fault.TOPIC_EXISTS: _Code.ALREADY_EXISTS,
    Fault.OFFSET_OUT_OF_RANGE: _Code.OUT_OF_RANGE,
    Fault.GROUP_FULL: _Code.RESOURCE_EXHAUSTED,
    Fault.UNSUPPORTED_VERSION: _Code.UNIMPLEMENTED,
    Fault.NOT_SUPPORTED: _Code.UNIMPLEMENTED,
    Fault.TIMED_OUT: _Code.DEADLINE_EXCEEDED,
    Fault.STORAGE: _Code.INTERNAL,
    Fault.INTERNAL: _Code.INTERNAL,
}


def status_code(fault: Fault) -> grpc.StatusCode:
    """Total: what is in no set above is something wrong with the request."""
    if fault in _NOT_FOUND:
        return _Code.NOT_FOUND
    if fault in _UNAVAILABLE:
        return _Code.UNAVAILABLE
    if fault in _PRECONDITION:
        return _Code.FAILED_PRECONDITION
    return _OTHERS.get(fault, _Code.INVALID_ARGUMENT)


class Method(Struct, frozen=True):
    """One unary call of a service."""

    name: str
    path: str
    request: type[Message]
    response: type[Message]

    @property
    def attribute(self) -> str:
        """`ListTopics` is implemented and called as `list_topics`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


def methods(service: ServiceDescriptor) -> Iterator[Method]:
    for method in service.methods:
        yield Method(
            method.name,
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
        )


Implementation = Callable[[Any], Awaitable[Message]]


def serve(service: ServiceDescriptor, implementation: object) -> grpc.GenericRpcHandler:
    """A handler for `grpc.aio`: each method is the coroutine of its `attribute` on `implementation`.

    AttributeError where one is missing, at once rather than at the first call.
    """
    handlers = {
        method.name: grpc.unary_unary_rpc_method_handler(
            _guarded(getattr(implementation, method.attribute), method.name),
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
        for method in methods(service)
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _guarded(call: Implementation, name: str) -> Callable[[Any, Any], Awaitable[Message]]:
    async def answer(request: Any, context: Any) -> Message:
        try:
            return await call(request)
        except TreecastError as refusal:
            error = refusal
        except Exception:
            _log.exception("%s failed", name)
            error = TreecastError(Fault.INTERNAL)
        await context.abort(status_code(error.fault), error.detail, ((FAULT_KEY, error.fault.name),))
        raise AssertionError("abort returned")

    return answer


class Unreachable(Exception):
    """Nobody answers at the address. The text says what to do."""


class Caller:
    """Blocking calls over one channel. Raises TreecastError for refusals and Unreachable."""

    def __init__(self, service: ServiceDescriptor, target: str, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._channel = grpc.insecure_channel(target, options=OPTIONS)
        self._calls = {
            method.name: self._channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            for method in methods(service)
        }

    def call(self, name: str, request: Message) -> Any:
        try:
            return self._calls[name](request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def _translate(self, error: Any) -> Exception:
        for key, value in error.trailing_metadata() or ():
            if key == FAULT_KEY and value in Fault.__members__:
                return TreecastError(Fault[value], error.details())
        if error.code() is _Code.UNAVAILABLE:
            return Unreachable(f"no daemon answers at {self._target}")
        if error.code() is _Code.DEADLINE_EXCEEDED:
            return Unreachable(f"the daemon at {self._target} did not answer within {self._timeout:g} s")
        return TreecastError(Fault.INTERNAL, f"{error.code().name}: {error.details()}")

    def close(self) -> None:
        self._channel.close()
