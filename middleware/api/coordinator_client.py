"""A thin, asynchronous client of the coordinator: makes the calls of `CoordinatorCalls` by gRPC, signed, to
whichever coordinator leads.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from hmac import compare_digest
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from treecast.middleware.model.errors import Fault, TreecastError

from .call_auth import (
    AUTH_KEY,
    CHALLENGE_KEY,
    CLUSTER_KEY,
    LEADER_KEY,
    NONCE_BYTES,
    PROOF_KEY,
    PROTOCOL,
    PROTOCOL_KEY,
    Signer,
)
from .coordinator_calls import CoordinatorCalls, R, nonsense, parse
from .join_token import JoinToken
from .rpc import FAULT_KEY, OPTIONS, Secured, methods, open_channel
from .v1 import coordinator_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Coordinator"]
CALL_SECONDS = 10.0
_OPTIONS = (
    *OPTIONS,
    # a repeat with the same nonce would be refused; this client repeats calls itself
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # time for one attempt: a lost SYN is repeated after 1 s
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_SILENT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class NotLeading(TreecastError):
    """The refusal of a coordinator that does not lead, which did nothing. `leader`: its word for who does."""

    def __init__(self, detail: str, leader: str) -> None:
        super().__init__(Fault.COORDINATOR_UNAVAILABLE, detail)
        self.leader = leader


class _Place:
    """One coordinator's address, with what is known of the process there."""

    def __init__(self, target: str, token: JoinToken | None, secured: Secured | None) -> None:
        self.target = target
        self.signer = Signer(token) if token else None
        self.channel = open_channel(grpc.aio, target, _OPTIONS, secured)
        self.proven = False  # whether an answer has proven that the coordinator knows the key
        self.streams: set[Any] = set()  # calls whose answers are read
        self._retired: list[Any] = []  # channels whose streams go on

    def use(self, secured: Secured) -> None:
        """Makes further calls with other credentials, such as a renewed certificate. Streams go on."""
        self._retired.append(self.channel)
        self.channel = open_channel(grpc.aio, self.target, _OPTIONS, secured)

    async def close(self) -> None:
        for channel in (*self._retired, self.channel):
            await channel.close()


class CoordinatorClient(CoordinatorCalls):
    """Calls by gRPC. If `token` is None, calls are not signed. Tests pass a seeded `rng`.

    With several addresses it calls one until that one does not answer, does not lead, or answers with an
    earlier epoch than the highest heard of; then the next one. `target` is the present one.
    """

    def __init__(
        self,
        target: str,
        token: JoinToken | None,
        *,
        cluster_id: str = "",
        timeout: float = CALL_SECONDS,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        secured: Secured | None = None,
    ) -> None:
        """`target`: HOST:PORT, or several of them separated by commas. `secured`: credentials and options of
        gRPC for a secured cluster (`trust.Trust.channel_credentials`).
        """
        self._places = [_Place(one.strip(), token, secured) for one in target.split(",")]
        self._place = self._places[0]
        super().__init__(
            self._place.target, token.cluster_id if token else cluster_id, rng or random.Random()
        )
        self._timeout = timeout
        self._clock = clock
        self._paths = {method.name: method.path for method in methods(SERVICE)}

    async def close(self) -> None:
        for place in self._places:
            await place.close()

    def use(self, secured: Secured) -> None:
        """Makes further calls with other credentials. Calls in progress end as they began."""
        for place in self._places:
            place.use(secured)

    # --- which coordinator

    def _leave(self, place: _Place, leader: str = "") -> None:
        """Goes on to the next coordinator, or to `leader` if it is listed. Ends the streams of `place`."""
        if place is not self._place or len(self._places) == 1:
            return
        following = self._places[(self._places.index(place) + 1) % len(self._places)]
        named = [one for one in self._places if one.target == leader and one is not place]
        self._place = named[0] if named else following
        self.target = self._place.target
        for stream in list(place.streams):
            stream.cancel()

    def _heed(self, epoch: int) -> None:
        try:
            super()._heed(epoch)
        except TreecastError:
            self._leave(self._place)
            raise

    # --- calls

    async def _call(self, name: str, request: Message, response: type[R]) -> R:
        """Asks the other coordinators only after a refusal by one that does not lead: after silence nobody
        knows whether the call was executed.
        """
        body = request.SerializeToString()
        for last in range(len(self._places), 0, -1):
            place = self._place
            try:
                answer: Any = parse(response, await self._ask(place, name, body))
            except NotLeading as refusal:
                self._leave(place, refusal.leader)
                if last == 1:
                    raise
            except TreecastError as error:
                if error.fault is Fault.COORDINATOR_UNAVAILABLE:
                    self._leave(place)
                raise
            else:
                self._heed(answer.epoch)
                return cast(R, answer)
        raise AssertionError("unreachable")

    async def _ask(self, place: _Place, name: str, body: bytes) -> bytes:
        call = place.channel.unary_unary(self._paths[name])
        for last in (False, True):
            nonce = secrets.token_bytes(NONCE_BYTES)
            metadata = self._metadata(place, name, body, nonce)
            try:
                answer: bytes = await call(body, timeout=self._timeout, metadata=metadata)
                return self._open(place, name, nonce, 0, answer)
            except grpc.aio.AioRpcError as error:
                if last or not self._learn(place, error, nonce):
                    raise self._translate(place, error, name, nonce) from error
        raise AssertionError("unreachable")

    async def _stream(self, name: str, request: Message) -> AsyncGenerator[bytes, None]:
        place, body = self._place, request.SerializeToString()
        try:
            async with aclosing(self._read(place, name, body)) as messages:
                async for message in messages:
                    yield message
        except NotLeading as refusal:
            self._leave(place, refusal.leader)
            raise
        except TreecastError as error:
            if error.fault is Fault.COORDINATOR_UNAVAILABLE:
                self._leave(place)
            raise

    async def _read(self, place: _Place, name: str, body: bytes) -> AsyncGenerator[bytes, None]:
        call = place.channel.unary_stream(self._paths[name])
        for last in (False, True):
            nonce = secrets.token_bytes(NONCE_BYTES)
            messages, number = call(body, metadata=self._metadata(place, name, body, nonce)), 0
            place.streams.add(messages)
            try:
                async for message in messages:
                    yield self._open(place, name, nonce, number, message)
                    number += 1
                return
            except grpc.aio.AioRpcError as error:
                if last or not self._learn(place, error, nonce):
                    raise self._translate(place, error, name, nonce) from error
            except asyncio.CancelledError:
                if place is self._place or not _was_left():
                    raise
                raise TreecastError(
                    Fault.COORDINATOR_UNAVAILABLE, f"calls do not go to {place.target} any longer"
                ) from None
            finally:
                place.streams.discard(messages)
                messages.cancel()

    def _metadata(self, place: _Place, name: str, body: bytes, nonce: bytes) -> tuple[tuple[str, str], ...]:
        metadata = [(PROTOCOL_KEY, PROTOCOL)]
        if self.cluster_id:
            metadata.append((CLUSTER_KEY, self.cluster_id))
        if place.signer is not None:
            proof = place.signer.sign(self._paths[name], body, nonce, self._clock())
            metadata.append((AUTH_KEY, proof))
        return tuple(metadata)

    def _learn(self, place: _Place, error: grpc.aio.AioRpcError, nonce: bytes) -> bool:
        """Adopts a challenge. Returns whether there was one and the call is worth repeating."""
        challenge = _trailing(error, CHALLENGE_KEY)
        if place.signer is None or not challenge:
            return False
        place.signer.learn(challenge, nonce, self._clock())
        return True

    def _open(self, place: _Place, name: str, nonce: bytes, number: int, answer: bytes) -> bytes:
        """Returns an answer's bytes if it is the coordinator's answer to this call."""
        if place.signer is None:
            return answer
        body = place.signer.key.open(self._paths[name], nonce, number, answer)
        if body is None:
            raise nonsense("it is not signed by this cluster's key")
        place.proven = True
        return body

    def _is_its_own(
        self, place: _Place, error: grpc.aio.AioRpcError, fault: str, name: str, nonce: bytes
    ) -> bool:
        """Returns whether to trust a refusal. It is trusted until an answer was proven: the token may be
        wrong.
        """
        if place.signer is None or not place.proven:
            return True
        wanted = place.signer.key.refusal(self._paths[name], nonce, fault, error.details() or "")
        return compare_digest(wanted, _trailing(error, PROOF_KEY))

    def _translate(
        self, place: _Place, error: grpc.aio.AioRpcError, name: str, nonce: bytes
    ) -> TreecastError:
        fault, detail = _trailing(error, FAULT_KEY), error.details() or ""
        if fault in Fault.__members__:
            if not self._is_its_own(place, error, fault, name, nonce):
                return nonsense(f"{fault}, not signed by this cluster's key: {error.details()}")
            leader = _found(error, LEADER_KEY)
            return TreecastError(Fault[fault], detail) if leader is None else NotLeading(detail, leader)
        if error.code() in _SILENT:
            return TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, f"no coordinator answers at {place.target}: {error.details()}"
            )
        return nonsense(f"{error.code().name}: {error.details()}")


def _was_left() -> bool:
    """Returns whether a stream's call was cancelled, rather than the task that reads it."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def _found(error: grpc.aio.AioRpcError, key: str) -> str | None:
    values = (value for name, value in error.trailing_metadata() or () if name == key)
    return next((value for value in values if isinstance(value, str)), None)


def _trailing(error: grpc.aio.AioRpcError, key: str) -> str:
    return _found(error, key) or ""
