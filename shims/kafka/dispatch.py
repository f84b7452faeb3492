"""Dispatches request frames to handlers, and answers for handlers that refuse or fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol

from treecast.middleware.broker import (
    BrokerSettings,
    Cluster,
    Leaders,
    LongPolls,
    PartitionLeader,
    TopicSchemas,
)
from treecast.middleware.broker.access import Granted
from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.shims.log_ins import LogIns

from . import errors
from . import versions as v
from .codec import CodecError, LocalCodecError, RequestHeader, decode_request_header
from .handlers import HANDLERS, Context, Handler
from .handlers.api_versions import refuse_unknown_version
from .handlers.base import AutoCreations, Fields, Message, rows_of
from .handlers.fetch import TopicNames, fetch
from .handlers.produce import ProduceRun, produce, refuse_old_produce
from .handlers.repeated import commit, heartbeat
from .log_in import LogIn, State
from .messages import MalformedMessage
from .rights import check_whole
from .schema import decode_request, encode_response
from .session import Pending, Refused
from .settings import KafkaSettings
from .starting import start

_log = Log("treecast.kafka")

# A decoded request can be tens of times larger than its bytes. Only Produce is decoded in place.
_MAX_FETCH_BYTES = 4 * 1024 * 1024
_MAX_OTHER_BYTES = 16 * 1024 * 1024

_APART_BYTES: Final = 16 * 1024  # a request of this size may take some milliseconds to read
_APART_ROWS: Final = 2_000  # an answer of as many rows takes some milliseconds to write
_FEW_FIELDS: Final = frozenset({v.JOIN_GROUP, v.SYNC_GROUP})  # large ones consist of opaque bytes

_MOST_LEADERS: Final = 1024  # partitions that are remembered
_FEW_LEADERS: Final = 64  # fewer are not looked through for those that have gone


class _Api:
    """The fields of `versions.Api` that every request is checked against, in a class with fast attributes."""

    def __init__(self, name: str, first: int, last: int) -> None:
        self.name = name
        self.first = first
        self.last = last


_APIS: Final[dict[int, _Api]] = {key: _Api(api.name, api.first, api.last) for key, api in v.APIS.items()}


class Peer(Protocol):
    """A connection, as request handlers see it."""

    @property
    def client_host(self) -> str: ...

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) at which this client reaches the daemon."""

    @property
    def log_in(self) -> LogIn:
        """How far its log-in has come, and its rights."""


class BrokerView(Protocol):
    """The part of `Broker` that the face uses."""

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def cluster(self) -> Cluster: ...

    @property
    def schemas(self) -> TopicSchemas: ...

    @property
    def polls(self) -> LongPolls: ...

    @property
    def work(self) -> WorkBudget: ...


class KnownLeaders:
    """The partitions that clients have used lately, looked up in the cluster once while they are in use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, int], PartitionLeader] = {}
        self._enough = _FEW_LEADERS

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """As `Cluster.partition`."""
        place = (topic, index)
        known = self._known.get(place)
        if known is not None:
            if known.here:
                return known
            # The topic was deleted or its leader has moved: the cluster knows where it is now, if anywhere.
            del self._known[place]
        found = self._cluster.partition(topic, index)
        if len(self._known) >= self._enough:
            self._drop_gone()
        self._known[place] = found
        return found

    def _drop_gone(self) -> None:
        """Drops the partitions of deleted topics, which would stay in memory otherwise."""
        for place, known in list(self._known.items()):
            if not known.here:
                del self._known[place]
        # More partitions in use than are remembered: starting over is cheaper than an order of their use.
        if len(self._known) >= _MOST_LEADERS:
            self._known.clear()
        self._enough = min(max(2 * len(self._known), _FEW_LEADERS), _MOST_LEADERS)


class Dispatcher:
    """Serves the requests of all connections of a face."""

    def __init__(
        self,
        broker: BrokerView,
        settings: KafkaSettings,
        counters: FaceCounters,
        loop: asyncio.AbstractEventLoop,
        log_ins: LogIns,
    ) -> None:
        self._log_ins = log_ins
        self.fetch_max_bytes = settings.fetch_max_bytes
        self.polls = broker.polls
        self._broker = broker
        self._cluster: Cluster = broker.cluster  # looked up once: a started broker keeps its cluster
        self._leaders = KnownLeaders(broker.cluster)
        self._names = TopicNames(broker.cluster.definitions)
        self._schemas = broker.schemas
        self._settings = settings
        self._requests = counters.requests
        self._counters = counters
        self._loop = loop
        self._tasks: set[asyncio.Task[Fields]] = set()
        self._answers: set[asyncio.Task[list[Chunk] | None]] = set()
        self._run = ProduceRun(loop, broker.work)
        self._run_leaders: Leaders = self._leaders  # of the connection whose requests are in `_run`
        self._work = broker.work
        self._creations = AutoCreations(loop.time)
        self._apart = ThreadPoolExecutor(1, "kafka-messages")  # reads and writes large messages

    def answer(self, peer: Peer, frame: memoryview, more: bool = False) -> list[Chunk] | Pending:
        """Returns the answer to the request in `frame`, or a `Pending`; no buffers if there is no answer.

        `more`: other requests of the same chunk follow. In that case `frame` may be referenced until
        `end_of_chunk` is called; otherwise it is not referenced after the return.
        Raises Refused if the connection must be closed.
        """
        try:
            header = decode_request_header(frame)
            return self._route(peer, header, frame, more)
        except LocalCodecError:
            raise
        except (CodecError, MalformedMessage) as error:
            raise Refused(f"malformed request: {error}") from error

    def end_of_chunk(self) -> None:
        """Serves the Produce requests that waited for the rest of their chunk."""
        if not self._run.empty:
            self._run.finish(self._run_leaders)

    def _route(
        self, peer: Peer, header: RequestHeader, frame: memoryview, more: bool
    ) -> list[Chunk] | Pending:
        key, version = header.api_key, header.api_version
        api = _APIS.get(key)
        if api is None:
            raise Refused(f"unknown API key {key}", late=True)
        # Counted before the refusals below, so that metrics show those requests too.
        self._requests[api.name] = self._requests.get(api.name, 0) + 1
        if not api.first <= version <= api.last:
            return self._unsupported(v.APIS[key], header, frame)
        log_in = peer.log_in
        closed = log_in.identities.closed  # while it is not, nothing is asked of `log_in`
        if closed and not log_in.settled and not log_in.serves(key, time.time()):
            over = log_in.state is State.DONE
            when = (
                "after the end of its token" if over else "before the log-in: clients have to use SASL here"
            )
            raise Refused(f"{api.name} {when}", late=True)
        if key == v.PRODUCE:
            leaders: Leaders = log_in.writable(self._leaders) if closed else self._leaders
            # A lone produce takes the short way. Behind others of its chunk it must join them, to stay in
            # their order.
            if more or not self._run.empty:
                self._run_leaders = leaders
                return self._run.add(leaders, header, frame)
            return produce(leaders, self._loop, header, frame, self._work)
        self.end_of_chunk()  # a later request must see what the earlier ones produced
        if key == v.FETCH:
            if len(frame) > _MAX_FETCH_BYTES:
                raise Refused(f"a fetch of {len(frame)} bytes")
            leaders = log_in.readable(self._leaders) if closed else self._leaders
            return fetch(
                leaders,
                self._names,
                self._schemas,
                self.polls,
                self._counters,
                header,
                frame,
                self.fetch_max_bytes,
            )
        if key == v.OFFSET_COMMIT or key == v.HEARTBEAT:
            answer = self._repeated(header, frame, log_in.granted if closed else None)
            if answer is not None:
                return answer
        if len(frame) > _MAX_OTHER_BYTES:
            raise Refused(f"a request {api.name} of {len(frame)} bytes")
        if len(frame) >= _APART_BYTES and key not in _FEW_FIELDS:
            # A copy, because the thread reads it after `frame` has become invalid.
            return self._handle_apart(peer, header, bytes(frame[header.body :]))
        return self._handle(peer, header, frame)

    def _unsupported(self, api: v.Api, header: RequestHeader, frame: memoryview) -> list[Chunk]:
        version = header.api_version
        # Newer clients ask with their newest version, and expect an answer in version 0 that names the known
        # ones.
        if api.key == v.API_VERSIONS:
            return refuse_unknown_version(header.correlation_id)
        if api.key == v.PRODUCE and 0 <= version < api.first:
            return refuse_old_produce(header, frame)
        raise Refused(f"{api.name} version {version}; {api.first} to {api.last} are served", late=True)

    def _repeated(
        self, header: RequestHeader, frame: memoryview, granted: Granted | None
    ) -> list[Chunk] | Pending | None:
        """Serves what consumers repeat with each poll; None if it is left to the API's handler."""
        if len(frame) >= _APART_BYTES:
            return None
        try:
            if header.api_key == v.HEARTBEAT:
                return heartbeat(self._cluster, granted, header, frame)
            return commit(self._cluster, granted, header, frame)
        except CodecError:
            raise
        except Exception as error:  # the handler tries again, and answers in the API's own form
            _log.error("request failed", trace=error, request=_APIS[header.api_key].name)
            return None

    # --- all other requests

    def _handle(self, peer: Peer, header: RequestHeader, frame: memoryview) -> list[Chunk] | Pending:
        request = decode_request(header.api_key, header.api_version, frame[header.body :])
        handler = HANDLERS[header.api_key]
        context = self._context(peer, header)
        try:
            if context.log_in.identities.closed:
                check_whole(context.log_in.granted, header.api_key, request)
            outcome = handler.run(context, request)
            if isinstance(outcome, Coroutine):
                # Run up to its first wait: most handlers never wait, and then no task is made for them.
                outcome = start(outcome, self._loop)
            if isinstance(outcome, asyncio.Task):
                return self._later(handler, header, request, outcome)
            assert not hasattr(outcome, "__await__")
            if rows_of(outcome) > _APART_ROWS:
                return self._encode_apart(header, outcome)
            return self._encode(header, outcome)
        except Exception as error:
            return self._refuse(handler, header, request, error)

    def _handle_apart(self, peer: Peer, header: RequestHeader, body: bytes) -> Pending:
        """As `_handle`, for a request that a thread reads and whose answer a thread writes."""
        return self._pending_apart(self._answered_apart(peer, header, body))

    async def _answered_apart(self, peer: Peer, header: RequestHeader, body: bytes) -> list[Chunk] | None:
        read = partial(decode_request, header.api_key, header.api_version, memoryview(body))
        try:
            request = await self._loop.run_in_executor(self._apart, read)
        except MalformedMessage as error:
            _log.warning("malformed request", request=_APIS[header.api_key].name, error=error)
            return None
        handler = HANDLERS[header.api_key]
        try:
            check_whole(peer.log_in.granted, header.api_key, request)
            outcome = handler.run(self._context(peer, header), request)
            fields = await outcome if isinstance(outcome, Awaitable) else outcome
            return await self._written_apart(header, fields)
        except Exception as error:
            return self._refuse(handler, header, request, error)

    def write_apart(
        self, header: RequestHeader, fields: Fields, then: Callable[[list[Chunk] | None], None]
    ) -> None:
        """Writes a large answer on the thread, then calls `then` with it, or with None after an error."""
        written = self._pending_apart(self._written_apart(header, fields))
        written.deliver = partial(_hand_on, then)

    def _encode_apart(self, header: RequestHeader, fields: Fields) -> Pending:
        return self._pending_apart(self._written_apart(header, fields))

    async def _written_apart(self, header: RequestHeader, fields: Fields) -> list[Chunk]:
        return await self._loop.run_in_executor(self._apart, partial(self._encode, header, fields))

    def _pending_apart(self, answer: Coroutine[Any, Any, list[Chunk] | None]) -> Pending:
        pending = _PendingApart()
        task = self._loop.create_task(answer)
        # The loop keeps only weak references to tasks; without this set, one could be collected while it
        # waits.
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        task.add_done_callback(pending.task_done)
        return pending

    def close(self) -> None:
        """Ends the thread. Its work at hand is finished."""
        self._apart.shutdown(wait=False, cancel_futures=True)

    def _context(self, peer: Peer, header: RequestHeader) -> Context:
        return Context(
            cluster=self._cluster,
            broker=self._broker.settings,
            settings=self._settings,
            key=header.api_key,
            version=header.api_version,
            client_id=header.client_id,
            client_host=peer.client_host,
            address=peer.address,
            work=self._work,
            creations=self._creations,
            log_in=peer.log_in,
            log_ins=self._log_ins,
        )

    def _encode(self, header: RequestHeader, fields: Fields) -> list[Chunk]:
        return [encode_response(header.api_key, header.api_version, header.correlation_id, fields)]

    def _refuse(
        self, handler: Handler, header: RequestHeader, request: Message, error: BaseException
    ) -> list[Chunk]:
        """Returns the API's own answer to an error of the request as a whole."""
        if isinstance(error, TreecastError):
            code = errors.code_for(error, header.api_key, header.api_version)
            return self._encode(header, handler.refuse(request, code, error.detail))
        name = v.APIS[header.api_key].name
        _log.error("request failed", trace=error, request=name, version=header.api_version)
        reasons = self._counters.protocol_errors
        reasons["internal error"] = reasons.get("internal error", 0) + 1
        return self._encode(
            header, handler.refuse(request, errors.UNKNOWN_SERVER_ERROR, Fault.INTERNAL.value)
        )

    def _later(
        self, handler: Handler, header: RequestHeader, request: Message, task: asyncio.Task[Fields]
    ) -> Pending:
        pending = _PendingTask(self, handler, header, request)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(pending.task_done)
        return pending

    def finished(
        self, handler: Handler, header: RequestHeader, request: Message, task: asyncio.Task[Fields]
    ) -> list[Chunk]:
        """Returns the answer of a handler that had to wait."""
        if task.cancelled():
            # A group member looks for its coordinator and tries there.
            return self._refuse(handler, header, request, TreecastError(Fault.NOT_COORDINATOR))
        error = task.exception()
        if error is not None:
            return self._refuse(handler, header, request, error)
        try:
            return self._encode(header, task.result())
        except Exception as wrong:
            return self._refuse(handler, header, request, wrong)

    def refuse_closing(self, handler: Handler, header: RequestHeader, request: Message) -> list[Chunk]:
        """Returns NOT_COORDINATOR for a group member that waits while the face closes.

        The member then looks for its group again.
        """
        return self._refuse(handler, header, request, TreecastError(Fault.NOT_COORDINATOR))


def _hand_on(then: Callable[[list[Chunk] | None], None], _: Pending, buffers: list[Chunk] | None) -> None:
    then(buffers)


class _PendingApart(Pending):
    """A large request, or a request with a large answer."""

    def task_done(self, task: asyncio.Task[list[Chunk] | None]) -> None:
        if task.cancelled():
            self.finish(None)
            return
        error = task.exception()
        if error is not None:
            _log.error("request failed", trace=error)
        self.finish(None if error is not None else task.result())


class _PendingTask(Pending):
    """A request whose handler waits."""

    def __init__(
        self, dispatcher: Dispatcher, handler: Handler, header: RequestHeader, request: Message
    ) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._handler = handler
        self._header = header
        self._request = request

    def task_done(self, task: asyncio.Task[Fields]) -> None:
        if not task.cancelled() and task.exception() is None and rows_of(task.result()) > _APART_ROWS:
            self._dispatcher.write_apart(self._header, task.result(), self.finish)
            return
        buffers = self._dispatcher.finished(self._handler, self._header, self._request, task)
        self.finish(buffers)

    def hurry(self) -> None:
        # Only these wait for other members, who may never come. All other handlers end by themselves.
        if self._header.api_key in (v.JOIN_GROUP, v.SYNC_GROUP):
            self.finish(self._dispatcher.refuse_closing(self._handler, self._header, self._request))
