"""A thin, asynchronous client of the coordinator (`proto/treecast/v1/coordinator.proto`).

`CoordinatorClient` signs and makes calls. `Attachment` keeps a host attached. `watch` resumes after every
interruption. Every call raises TreecastError: COORDINATOR_UNAVAILABLE if nobody answers, INTERNAL for an
invalid answer, otherwise the coordinator's own refusal.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from hmac import compare_digest
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from treecast.middleware.model.errors import Fault, TreecastError

from .call_auth import (
    AUTH_KEY,
    CHALLENGE_KEY,
    CLUSTER_KEY,
    NONCE_BYTES,
    PROOF_KEY,
    PROTOCOL,
    PROTOCOL_KEY,
    Signer,
)
from .entries import START, Change, Position, Update, heard_change
from .join_token import JoinToken
from .lasting import BackOff, lasting
from .rpc import FAULT_KEY, OPTIONS, methods
from .v1 import coordinator_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Coordinator"]
CALL_SECONDS = 10.0
MAX_SNAPSHOT_ENTRIES = 5_000_000
_LONGEST_LEASE = 3600.0
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
# Faults that end a watch: the same call would be refused again.
_FINAL = {Fault.POLICY_VIOLATION, Fault.UNSUPPORTED_VERSION, Fault.INVALID_REQUEST, Fault.NOT_SUPPORTED}

R = TypeVar("R", bound=Message)


class CoordinatorCalls(ABC):
    """The calls of a coordinator, whatever the transport. `target` names it in messages."""

    def __init__(self, target: str, cluster_id: str, rng: random.Random) -> None:
        """`cluster_id` may be empty; the first attach then learns it. `rng` spreads repeats."""
        self.target = target
        self.cluster_id = cluster_id
        self.rng = rng

    @abstractmethod
    async def _call(self, name: str, request: Message, response: type[R]) -> R:
        """Makes one call. Raises TreecastError as described in the module."""

    @abstractmethod
    def _stream(self, name: str, request: Message) -> AsyncGenerator[bytes, None]:
        """Makes one call whose answer is a stream of messages."""

    @abstractmethod
    async def close(self) -> None:
        """Releases the transport."""

    # --- hosts

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Attaches, and adopts the cluster id if none was known. Raises POLICY_VIOLATION if it differs."""
        answer = await self._call("Attach", request, pb.AttachResponse)
        if self.cluster_id and answer.cluster_id != self.cluster_id:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"the coordinator at {self.target} is of cluster {answer.cluster_id[:100]!r},"
                f" not of {self.cluster_id!r}: look at --join",
            )
        _check_lease(answer.lease_seconds)
        self.cluster_id = answer.cluster_id
        return answer

    async def renew(self, session: pb.HostSession) -> pb.RenewResponse:
        answer = await self._call("Renew", pb.RenewRequest(session=session), pb.RenewResponse)
        _check_lease(answer.lease_seconds)
        return answer

    async def detach(self, session: pb.HostSession) -> None:
        await self._call("Detach", pb.DetachRequest(session=session), pb.DetachResponse)

    # --- topics

    async def create_topic(self, request: pb.CreateTopicEntryRequest) -> pb.TopicEntryResponse:
        return await self._call("CreateTopic", request, pb.TopicEntryResponse)

    async def delete_topic(self, name: str) -> pb.TopicEntryResponse:
        request = pb.DeleteTopicEntryRequest(name=name)
        return await self._call("DeleteTopic", request, pb.TopicEntryResponse)

    async def alter_topic(self, request: pb.AlterTopicEntryRequest) -> pb.TopicEntryResponse:
        return await self._call("AlterTopic", request, pb.TopicEntryResponse)

    async def create_partitions(self, request: pb.CreatePartitionEntriesRequest) -> pb.TopicEntryResponse:
        return await self._call("CreatePartitions", request, pb.TopicEntryResponse)

    # --- homes

    async def group_home(self, session: pb.HostSession, group_id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=group_id)
        return (await self._call("GroupHome", request, pb.HomeResponse)).home

    async def transaction_home(self, session: pb.HostSession, transactional_id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=transactional_id)
        return (await self._call("TransactionHome", request, pb.HomeResponse)).home

    async def replicas_home(self, session: pb.HostSession, id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=id)
        return (await self._call("ReplicasHome", request, pb.HomeResponse)).home

    async def share_home(self, session: pb.HostSession, id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=id)
        return (await self._call("ShareHome", request, pb.HomeResponse)).home

    async def put_home_state(
        self, session: pb.HostSession, writes: Sequence[pb.HomeWrite]
    ) -> dict[int, TreecastError]:
        """Returns the refused writes by their index; all others are on the coordinator's disk."""
        request = pb.PutHomeStateRequest(session=session, writes=writes)
        answer = await self._call("PutHomeState", request, pb.PutHomeStateResponse)
        return {
            refusal.index: TreecastError(_fault(refusal.fault), refusal.detail) for refusal in answer.refused
        }

    async def get_home_state(self, session: pb.HostSession, home: pb.HomeEntry) -> dict[bytes, bytes]:
        """Returns all items of a home that is on the caller's host, read page by page."""
        found: dict[bytes, bytes] = {}
        after = b""
        while True:
            request = pb.GetHomeStateRequest(
                session=session, kind=home.kind, id=home.id, epoch=home.epoch, after=after
            )
            page = await self._call("GetHomeState", request, pb.GetHomeStateResponse)
            found.update((item.key, item.value) for item in page.items)
            if not page.more:
                return found
            if not page.items or page.items[-1].key <= after:
                raise _nonsense("a page of a home's state does not continue the previous one")
            after = page.items[-1].key

    # --- who leads

    async def take_lead(self, request: pb.TakeLeadRequest) -> pb.TopicEntryResponse:
        """Makes the caller the leader of a partition, with `request.leader_epoch`."""
        return await self._call("TakeLead", request, pb.TopicEntryResponse)

    async def give_up(
        self, session: pb.HostSession, topic_id: bytes, partitions: Sequence[int]
    ) -> pb.TopicEntryResponse:
        """Reports that records of partitions that the caller leads are lost; the partitions then wait
        for it.
        """
        request = pb.GiveUpRequest(session=session, topic_id=topic_id, partitions=partitions)
        return await self._call("GiveUp", request, pb.TopicEntryResponse)

    async def put_ends(self, session: pb.HostSession, ends: Sequence[pb.PartitionEnd]) -> None:
        """Records the end offsets of logs that the caller leads."""
        await self._call("PutEnds", pb.PutEndsRequest(session=session, ends=ends), pb.PutEndsResponse)

    async def get_ends(self, topic_id: bytes) -> Sequence[pb.PartitionEnd]:
        """Returns the recorded ends of one topic's partitions; partitions without a record are left out."""
        return (await self._call("GetEnds", pb.GetEndsRequest(topic_id=topic_id), pb.GetEndsResponse)).ends

    # --- ids and interest

    async def producer_ids(self, session: pb.HostSession, count: int = 0, at_least: int = 0) -> range:
        """Returns a block of ids from `at_least` on; no later block has lower ids either."""
        request = pb.ProducerIdsRequest(session=session, count=count, at_least=at_least)
        answer = await self._call("ProducerIds", request, pb.ProducerIdsResponse)
        if not answer.count or answer.first + answer.count > 2**63:
            raise _nonsense(f"a block of {answer.count} producer ids from {answer.first}")
        return range(answer.first, answer.first + answer.count)

    async def allot_state(self, session: pb.HostSession, levels: Sequence[str]) -> pb.StateEntry:
        request = pb.AllotStateRequest(session=session, levels=levels)
        return (await self._call("AllotState", request, pb.AllotStateResponse)).state

    async def release_state(self, session: pb.HostSession, state_id: int, *, force: bool = False) -> None:
        request = pb.ReleaseStateRequest(session=session, state_id=state_id, force=force)
        await self._call("ReleaseState", request, pb.ReleaseStateResponse)

    async def put_interest(self, session: pb.HostSession, version: int, patterns: Sequence[str]) -> int:
        """Returns the version that is now recorded."""
        request = pb.PutInterestRequest(session=session, version=version, patterns=patterns)
        return (await self._call("PutInterest", request, pb.PutInterestResponse)).version

    async def put_definitions(self, session: pb.HostSession, writes: Sequence[pb.DefinitionWrite]) -> int:
        """Returns the revision in which all of them are decided."""
        request = pb.PutDefinitionsRequest(session=session, writes=writes)
        return (await self._call("PutDefinitions", request, pb.PutDefinitionsResponse)).revision

    # --- itself

    async def status(self) -> pb.CoordinatorStatusResponse:
        """Returns the coordinator's status. Raises INTERNAL for an earlier version, which has none."""
        return await self._call("Status", pb.CoordinatorStatusRequest(), pb.CoordinatorStatusResponse)

    # --- watching

    async def watch(self, position: Position = START) -> AsyncGenerator[Update, None]:
        """Yields all changes from `position` on, across interruptions and restarts of the coordinator.

        Ends only with a refusal that would repeat: another cluster, key or version.
        """
        back_off = BackOff(self.rng)
        while True:
            try:
                async with aclosing(self._watch_once(position)) as updates:
                    async for update in updates:
                        position = update.position
                        back_off.reset()
                        yield update
            except TreecastError as error:
                if error.fault in _FINAL:
                    raise
                if error.fault is Fault.INTERNAL:
                    position = Position()
            await asyncio.sleep(back_off.pause())

    async def _watch_once(self, position: Position) -> AsyncGenerator[Update, None]:
        parts: list[Change] = []
        unfinished: Position | None = None  # of a snapshot with more parts to come
        request = pb.WatchRequest(history=position.history, revision=position.revision)
        async with aclosing(self._stream("Watch", request)) as messages:
            async for body in messages:
                message = _parse(pb.WatchResponse, body)
                reached = Position(message.history, message.revision)
                changes = tuple(map(heard_change, message.changes))
                if unfinished is not None and not (message.snapshot and reached == unfinished):
                    raise _nonsense("an incomplete snapshot")
                if not message.snapshot:
                    if reached.history != position.history or reached.revision <= position.revision:
                        raise _nonsense("changes that do not follow the previous ones")
                    position = reached
                    yield Update(False, position, changes)
                    continue
                parts += changes
                if len(parts) > MAX_SNAPSHOT_ENTRIES:
                    raise _nonsense(f"a snapshot of more than {MAX_SNAPSHOT_ENTRIES} entries")
                unfinished = reached if message.more else None
                if unfinished is None:
                    position, changes, parts = reached, tuple(parts), []
                    yield Update(True, position, changes)


class CoordinatorClient(CoordinatorCalls):
    """Calls by gRPC, over one channel. If `token` is None, calls are not signed. Tests pass a seeded
    `rng`.
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
    ) -> None:
        super().__init__(target, token.cluster_id if token else cluster_id, rng or random.Random())
        self._timeout = timeout
        self._clock = clock
        self._signer = Signer(token) if token else None
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._paths = {method.name: method.path for method in methods(SERVICE)}
        self._proven = False  # whether an answer has proven that the coordinator knows the key

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, name: str, request: Message, response: type[R]) -> R:
        body = request.SerializeToString()
        call = self._channel.unary_unary(self._paths[name])
        for last in (False, True):
            nonce = secrets.token_bytes(NONCE_BYTES)
            try:
                answer = await call(body, timeout=self._timeout, metadata=self._metadata(name, body, nonce))
                return _parse(response, self._open(name, nonce, 0, answer))
            except grpc.aio.AioRpcError as error:
                if last or not self._learn(error, nonce):
                    raise self._translate(error, name, nonce) from error
        raise AssertionError("unreachable")

    async def _stream(self, name: str, request: Message) -> AsyncGenerator[bytes, None]:
        body = request.SerializeToString()
        call = self._channel.unary_stream(self._paths[name])
        for last in (False, True):
            nonce = secrets.token_bytes(NONCE_BYTES)
            messages, number = call(body, metadata=self._metadata(name, body, nonce)), 0
            try:
                async for message in messages:
                    yield self._open(name, nonce, number, message)
                    number += 1
                return
            except grpc.aio.AioRpcError as error:
                if last or not self._learn(error, nonce):
                    raise self._translate(error, name, nonce) from error
            finally:
                messages.cancel()

    def _metadata(self, name: str, body: bytes, nonce: bytes) -> tuple[tuple[str, str], ...]:
        metadata = [(PROTOCOL_KEY, PROTOCOL)]
        if self.cluster_id:
            metadata.append((CLUSTER_KEY, self.cluster_id))
        if self._signer is not None:
            proof = self._signer.sign(self._paths[name], body, nonce, self._clock())
            metadata.append((AUTH_KEY, proof))
        return tuple(metadata)

    def _learn(self, error: grpc.aio.AioRpcError, nonce: bytes) -> bool:
        """Adopts a challenge. Returns whether there was one and the call is worth repeating."""
        challenge = _trailing(error, CHALLENGE_KEY)
        if self._signer is None or not challenge:
            return False
        self._signer.learn(challenge, nonce, self._clock())
        return True

    def _open(self, name: str, nonce: bytes, number: int, answer: bytes) -> bytes:
        """Returns an answer's bytes if it is the coordinator's answer to this call."""
        if self._signer is None:
            return answer
        body = self._signer.key.open(self._paths[name], nonce, number, answer)
        if body is None:
            raise _nonsense("it is not signed by this cluster's key")
        self._proven = True
        return body

    def _is_its_own(self, error: grpc.aio.AioRpcError, fault: str, name: str, nonce: bytes) -> bool:
        """Returns whether to trust a refusal. It is trusted until an answer was proven: the token may be
        wrong.
        """
        if self._signer is None or not self._proven:
            return True
        wanted = self._signer.key.refusal(self._paths[name], nonce, fault, error.details() or "")
        return compare_digest(wanted, _trailing(error, PROOF_KEY))

    def _translate(self, error: grpc.aio.AioRpcError, name: str, nonce: bytes) -> TreecastError:
        fault = _trailing(error, FAULT_KEY)
        if fault in Fault.__members__:
            if self._is_its_own(error, fault, name, nonce):
                return TreecastError(Fault[fault], error.details() or "")
            return _nonsense(f"{fault}, not signed by this cluster's key: {error.details()}")
        if error.code() in _SILENT:
            return TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, f"no coordinator answers at {self.target}: {error.details()}"
            )
        return _nonsense(f"{error.code().name}: {error.details()}")


class Attachment:
    """Keeps one host attached: renews its lease, and attaches again whenever the lease is lost."""

    def __init__(
        self,
        client: CoordinatorCalls,
        request: pb.AttachRequest,
        on_attached: Callable[[pb.AttachResponse], None] = lambda answer: None,
    ) -> None:
        """`on_attached` is called on the loop after every attach; each has a new session. `on_change` is
        called after each attempt to attach or renew, with the refusal or None.
        """
        self._client = client
        self.request = request  # of the next attach
        self.answer: pb.AttachResponse | None = None  # of the last one
        self._on_attached = on_attached
        self.on_change: Callable[[TreecastError | None], None] = lambda error: None
        self._session: pb.HostSession | None = None
        self._lease = 0.0
        self._task: asyncio.Task[None] | None = None
        self.last_error: TreecastError | None = None  # None while attached without errors

    @property
    def attached(self) -> bool:
        return self._session is not None

    @property
    def session(self) -> pb.HostSession:
        """The present session. Raises COORDINATOR_UNAVAILABLE while not attached."""
        if self._session is None:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"not attached to the coordinator at {self._client.target}: {self.last_error or 'not yet'}",
            )
        return self._session

    async def attach(self) -> pb.AttachResponse:
        """Attaches once, now. Raises the refusal."""
        self.answer = answer = await self._client.attach(self.request)
        self._session, self._lease = answer.session, answer.lease_seconds
        self._on_attached(answer)
        return answer

    def start(self) -> None:
        """Keeps the host attached in the background: attaches if necessary, renews, attaches again."""
        if self._task is None:
            work = lasting("attachment to the coordinator", self._run, BackOff(self._client.rng))
            self._task = asyncio.create_task(work)

    async def close(self, *, detach: bool) -> None:
        """Stops renewing. With `detach`, also tells the coordinator; if that fails, the lease expires."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        session, self._session = self._session, None
        if detach and session is not None:
            try:
                await self._client.detach(session)
            except TreecastError as error:
                self.last_error = error

    async def _run(self) -> None:
        back_off = BackOff(self._client.rng)
        while True:
            pause = await self._keep(back_off)
            await asyncio.sleep(pause)

    async def _keep(self, back_off: BackOff) -> float:
        """Attaches or renews. Returns the seconds until the next attempt."""
        try:
            if self._session is None:
                await self.attach()
            else:
                self._lease = (await self._client.renew(self._session)).lease_seconds
        except TreecastError as error:
            lost = error.fault is Fault.UNKNOWN_MEMBER and self._session is not None
            if lost:
                self._session = None
            self.last_error = error
            if not lost:
                self.on_change(error)
            return 0.0 if lost else min(back_off.pause(), max(self._lease / 3, 0.1))
        back_off.reset()
        self.last_error = None
        self.on_change(None)
        return self._lease / 3 * (0.75 + self._client.rng.random() / 4)


def _parse(of: type[R], body: bytes) -> R:
    try:
        return of.FromString(body)
    except DecodeError as error:
        raise _nonsense(f"no {of.DESCRIPTOR.name}: {error}") from error


def _check_lease(seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 < seconds <= _LONGEST_LEASE):
        raise _nonsense(f"a lease of {seconds} s")


def _nonsense(what: str) -> TreecastError:
    return TreecastError(Fault.INTERNAL, f"the coordinator's answer is invalid: {what}")


def _fault(name: str) -> Fault:
    return Fault[name] if name in Fault.__members__ else Fault.INTERNAL


def _trailing(error: grpc.aio.AioRpcError, key: str) -> str:
    for name, value in error.trailing_metadata() or ():
        if name == key and isinstance(value, str):
            return value
    return ""
