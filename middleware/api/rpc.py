"""gRPC from descriptors: methods and blocking clients of `proto/treecast/v1` without generated stubs.

A refusal is sent as a status: the code below for its fault, the detail as message, and the fault's name in
the trailing metadata, from which a client rebuilds the same `TreecastError`.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

from . import call_bodies
from .call_auth import (
    AUTH_KEY,
    CHALLENGE_KEY,
    CLUSTER_KEY,
    NONCE_BYTES,
    PROTOCOL,
    PROTOCOL_KEY,
    Signer,
)
from .join_token import JoinToken

FAULT_KEY = "treecast-fault"
# No other process may share the port, and no proxy may be between a host and its own daemon.
OPTIONS = (("grpc.so_reuseport", 0), ("grpc.enable_http_proxy", 0))
# Options of servers that other hosts call: they detect peers that vanished silently.
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


def server_options(connections: int, *, called_by_hosts: bool) -> tuple[tuple[str, int], ...]:
    """Returns the options of a server. `connections`: at most so many of each listener, if not 0."""
    options = (*OPTIONS, *call_bodies.OPTIONS, *(KEEPALIVE if called_by_hosts else ()))
    return (*options, (call_bodies.MOST_CONNECTIONS, connections)) if connections else options


_LARGEST = ("grpc.max_receive_message_length", 256 << 20)  # bytes: an answer may list 100,000 topics
# Credentials of gRPC and options with the name that the other end has to have.
Secured = tuple[Any, tuple[tuple[str, str], ...]]
MAX_CALLS = 20_000  # concurrent ones; gRPC refuses more

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
    Fault.NOT_IN_TRANSACTION,
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
    """Returns the status code of a fault. Total: a fault in no set above is an error in the request."""
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
        """The name of the implementation: `list_topics` for `ListTopics`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


def methods(service: ServiceDescriptor) -> Iterator[Method]:
    for method in service.methods:
        yield Method(
            method.name,
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
        )


class Unreachable(Exception):
    """Nobody answers at the address. The text says what to do."""


def open_channel(
    kind: Any, target: str, options: tuple[tuple[str, Any], ...], secured: Secured | None
) -> Any:
    """Returns a channel to an address. `kind`: `grpc`, or `grpc.aio`. `secured`: of a secured cluster."""
    if secured is None:
        return kind.insecure_channel(target, options=options)
    credentials, names = secured
    return kind.secure_channel(target, credentials, options=(*options, *names))


class Caller:
    """Blocking calls over one channel, signed by a token's key. Raises TreecastError and Unreachable."""

    def __init__(
        self,
        service: ServiceDescriptor,
        target: str,
        timeout: float,
        token: JoinToken | None = None,
        secured: Secured | None = None,
    ) -> None:
        """`secured`: credentials and options of a caller of a secured host (`trust.caller_credentials`)."""
        self._target = target
        self._timeout = timeout
        self._signer = Signer(token) if token is not None else None
        self._methods = {method.name: method for method in methods(service)}
        self._channel = open_channel(grpc, target, (*OPTIONS, _LARGEST), secured)
        self._calls = {name: self._channel.unary_unary(one.path) for name, one in self._methods.items()}

    def call(self, name: str, request: Message) -> Any:
        """Makes a call. A signed call is repeated once, because the first may have to learn the server's run
        and clock.
        """
        method, body = self._methods[name], request.SerializeToString()
        for last in (False, True):
            nonce = secrets.token_bytes(NONCE_BYTES)
            metadata = self._metadata(method, body, nonce)
            try:
                answer = self._calls[name](body, timeout=self._timeout, metadata=metadata)
            except grpc.RpcError as error:
                if last or not self._learn(error, nonce):
                    raise self._translate(error) from error
            else:
                return method.response.FromString(self._open(method, nonce, answer))
        raise AssertionError("unreachable")

    def _metadata(self, method: Method, body: bytes, nonce: bytes) -> tuple[tuple[str, str], ...]:
        if self._signer is None:
            return ()
        proof = self._signer.sign(method.path, body, nonce, time.monotonic())
        cluster_id = self._signer.key.cluster_id
        return (PROTOCOL_KEY, PROTOCOL), (CLUSTER_KEY, cluster_id), (AUTH_KEY, proof)

    def _learn(self, error: Any, nonce: bytes) -> bool:
        """Adopts a challenge. Returns whether there was one."""
        for key, value in error.trailing_metadata() or ():
            if key == CHALLENGE_KEY and self._signer is not None:
                self._signer.learn(value, nonce, time.monotonic())
                return True
        return False

    def _open(self, method: Method, nonce: bytes, answer: bytes) -> bytes:
        """Returns the answer's bytes if its sender knows the key."""
        if self._signer is None:
            return answer
        body = self._signer.key.open(method.path, nonce, 0, answer)
        if body is None:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"the daemon at {self._target} does not know the key of this token: check the address and"
                " the token",
            )
        return body

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
