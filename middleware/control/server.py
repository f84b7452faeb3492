"""`OpenCoordinator`: a coordinator with its own store and calls. `CoordinatorServer`: one with an address,
which may share a store with others.

`LocalCoordinator`: the calls of the coordinator that is embedded in the calling daemon.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message

from treecast.middleware.api.admission import Admission
from treecast.middleware.api.calls import Admits, Calls
from treecast.middleware.api.coordinator_calls import CoordinatorCalls
from treecast.middleware.api.coordinator_client import SERVICE
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import MAX_CALLS, Method, methods, server_options
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import new_cluster_id
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.settings import FsyncPolicy

from .coordinator import Coordinator
from .elected import ElectedCoordinator, ElectedSettings
from .service import CoordinatorService
from .store import SqliteStore, Store
from .stored_state import CoordinatorSettings

R = TypeVar("R", bound=Message)

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`path`: the store's file. If `token` is None, calls are not authenticated. Times in seconds.

    `cluster_id`: if empty, the token's, else the store's, else a new one. `database`: the URL of a store that
    is shared with other coordinators, in place of `path`; it needs a token or a cluster id.
    """

    address: Address
    path: Path
    token: JoinToken | None
    cluster_id: str = ""
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    fsync: FsyncPolicy = FsyncPolicy.BATCH
    fsync_interval: float = 1.0  # seconds, for `FsyncPolicy.INTERVAL`
    max_watchers: int = 10_000
    stall: float = 30.0  # time after which a watcher that reads nothing is dropped
    database: str = ""
    connections: int = 0  # at most so many, if not 0
    admission: Admits | None = None  # of a secured cluster, in place of the token's


class OpenCoordinator:
    """A coordinator with its store and calls but without an address; part of a server or a daemon."""

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """Opens the store. Raises TreecastError with what to do, and then leaves nothing open."""
        self._settings = settings
        store = _open_store(settings)
        try:
            self.coordinator = Coordinator(store, settings.coordinator, clock)
        except TreecastError:
            store.close()
            raise
        admission = settings.admission or Admission(
            self.coordinator.stored.cluster_id, settings.token, secrets.token_bytes(16)
        )
        self.service = CoordinatorService(self.coordinator, uuid.uuid4, settings.max_watchers)
        self.calls = Calls(SERVICE, self._serving, admission, clock, settings.stall)
        self._tasks: list[asyncio.Task[None]] = []

    def _serving(self, method: Method) -> Callable[[Any], Any]:
        call: Callable[[Any], Any] = getattr(self.service, method.attribute)
        return call

    def start(self) -> None:
        """Starts the check of leases, and the store's syncs in the background."""
        self._tasks.append(asyncio.create_task(self.coordinator.watch_leases()))
        if self._settings.fsync is FsyncPolicy.INTERVAL:
            keeping = self.coordinator.keep_forced(self._settings.fsync_interval)
            self._tasks.append(asyncio.create_task(keeping))

    @property
    def cluster_id(self) -> str:
        return self.coordinator.stored.cluster_id

    @property
    def refused_writes(self) -> int:
        return self.coordinator.refused_writes

    async def open(self, address: str) -> None:
        """Takes part: it leads from its start. `address` is not needed."""
        self.start()

    async def close(self) -> None:
        """Ends watchers, finishes waiting commands, and closes the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.coordinator.close()


def _open_store(settings: ServerSettings) -> Store:
    wanted = _cluster_of(settings)
    return SqliteStore(settings.path, new_id, cluster_id=wanted, fsync=settings.fsync)


def _cluster_of(settings: ServerSettings) -> str:
    token = settings.token
    wanted = settings.cluster_id or (token.cluster_id if token else "")
    if token is not None and token.cluster_id != wanted:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"the join token is of cluster {token.cluster_id}, not of {wanted}: use the right token",
        )
    return wanted


class CoordinatorServer:
    """A coordinator with an address. After start, `address` has the chosen port."""

    def __init__(self, settings: ServerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._open: OpenCoordinator | ElectedCoordinator | None = None
        self._server: grpc.aio.Server | None = None
        self.address = settings.address

    async def start(self) -> None:
        """Opens the store and listens. Raises TreecastError with what to do, and then leaves nothing open.

        A shared store need not be reachable yet, and another coordinator may lead on it.
        """
        opened = self._opened()
        self._open = opened
        try:
            await self._listen(opened)
            await opened.open(str(_told(self.address)))
        except BaseException:
            await self.close(0)
            raise

    def _opened(self) -> OpenCoordinator | ElectedCoordinator:
        settings = self._settings
        if not settings.database:
            return OpenCoordinator(settings, self._clock)
        shared = ElectedSettings(
            settings.database,
            _cluster_of(settings),
            settings.token,
            settings.max_watchers,
            settings.stall,
            settings.coordinator,
        )
        return ElectedCoordinator(shared, self._clock)

    async def _listen(self, opened: OpenCoordinator | ElectedCoordinator) -> None:
        settings = self._settings
        options = server_options(settings.connections, called_by_hosts=True)
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        server.add_generic_rpc_handlers((opened.calls.handler,))
        try:
            port = server.add_insecure_port(str(settings.address))
        except RuntimeError as error:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"the coordinator cannot listen on {settings.address}:"
                " check that the port is free and the address belongs to this host",
            ) from error
        self.address = Address(settings.address.host, port)
        self._server = server
        await server.start()

    @property
    def opened(self) -> OpenCoordinator | ElectedCoordinator:
        assert self._open is not None, "not started"
        return self._open

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, which has to lead."""
        found = self.opened.coordinator
        assert found is not None, "another one leads"
        return found

    @property
    def service(self) -> CoordinatorService:
        """The calls of a coordinator with a store of its own."""
        assert isinstance(self._open, OpenCoordinator)
        return self._open.service

    @property
    def calls(self) -> Calls:
        """The handlers of calls, for their counters."""
        return self.opened.calls

    def describe(self, about: Callable[[pb.CoordinatorStatusResponse], None]) -> None:
        """Lets `about` fill in what only the process knows of itself, in each status."""
        opened = self.opened
        if isinstance(opened, OpenCoordinator):
            opened.service.about = about
        else:
            opened.about = about

    async def close(self, grace: float = 1.0) -> None:
        """Ends watchers, finishes calls within `grace` seconds, and closes the store."""
        if self._open is not None:
            await self._open.close()
        if self._server is not None:
            await self._server.stop(grace)


def _told(address: Address) -> Address:
    """Returns the address for other machines: with this machine's name in place of a wildcard."""
    wild = address.host in ("0.0.0.0", "::")  # nosec B104  # compared
    return Address(socket.gethostname(), address.port) if wild else address


def new_id() -> str:
    """Returns a random cluster id."""
    return new_cluster_id(secrets.randbits(128))


class LocalCoordinator(CoordinatorCalls):
    """The same calls as a client's, made on the service itself. The caller needs no token."""

    def __init__(self, opened: OpenCoordinator, rng: random.Random | None = None) -> None:
        super().__init__("this daemon", opened.coordinator.stored.cluster_id, rng or random.Random())
        self._service = opened.service
        self._names = {method.name: method.attribute for method in methods(SERVICE)}

    async def _call(self, name: str, request: Message, response: type[R]) -> R:
        answer = await getattr(self._service, self._names[name])(request)
        assert isinstance(answer, response)
        return answer

    def _stream(self, name: str, request: Message) -> AsyncGenerator[bytes, None]:
        messages: AsyncGenerator[bytes, None] = getattr(self._service, self._names[name])(request)
        return messages

    async def close(self) -> None:
        """Does nothing: nothing was opened."""
