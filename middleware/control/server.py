"""`OpenCoordinator`: a coordinator with its store and calls. `CoordinatorServer`: one with an address.

`LocalCoordinator`: the calls of the coordinator that is embedded in the calling daemon.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc.aio
from google.protobuf.message import Message

from treecast.middleware.api.admission import Admission
from treecast.middleware.api.calls import Calls
from treecast.middleware.api.coordinator_client import SERVICE, CoordinatorCalls
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import KEEPALIVE, MAX_CALLS, OPTIONS, methods
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import new_cluster_id
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.settings import FsyncPolicy

from .coordinator import Coordinator, CoordinatorSettings
from .service import CoordinatorService
from .store import SqliteStore, Store

R = TypeVar("R", bound=Message)

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`path`: the store's file. If `token` is None, calls are not authenticated. Times in seconds.

    `cluster_id`: if empty, the token's, else the store's, else a new one.
    """

    address: Address
    path: Path
    token: JoinToken | None
    cluster_id: str = ""
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    fsync: FsyncPolicy = FsyncPolicy.BATCH
    max_watchers: int = 10_000
    stall: float = 30.0  # time after which a watcher that reads nothing is dropped


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
        admission = Admission(self.coordinator.cluster_id, settings.token, secrets.token_bytes(16))
        self.service = CoordinatorService(self.coordinator, uuid.uuid4, settings.max_watchers)
        self.calls = Calls(SERVICE, self.service, admission, clock, settings.stall)
        self._expiry: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the check of leases."""
        self._expiry = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        """Checks leases so often that no step is longer than `StateSettings.longest_step`."""
        state = self._settings.coordinator.state
        pause = min(1.0, state.lease / 4, state.longest_step / 2)
        while True:
            await asyncio.sleep(pause)
            try:
                await self.coordinator.expire_leases()
            except Exception:
                _log.exception("check of leases failed")

    async def close(self) -> None:
        """Ends watchers, finishes waiting commands, and closes the store."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        await self.coordinator.close()


def _open_store(settings: ServerSettings) -> Store:
    token = settings.token
    wanted = settings.cluster_id or (token.cluster_id if token else "")
    if token is not None and token.cluster_id != wanted:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"the join token is of cluster {token.cluster_id}, not of {wanted}: use the right token",
        )
    return SqliteStore(settings.path, new_id, cluster_id=wanted, fsync=settings.fsync)


class CoordinatorServer:
    """A coordinator with an address. After start, `address` has the chosen port."""

    def __init__(self, settings: ServerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._open: OpenCoordinator | None = None
        self._server: grpc.aio.Server | None = None
        self.address = settings.address

    async def start(self) -> None:
        """Opens the store and listens. Raises TreecastError with what to do, and then leaves nothing open."""
        opened = OpenCoordinator(self._settings, self._clock)
        try:
            await self._listen(opened)
        except BaseException:
            await opened.close()
            raise
        self._open = opened
        opened.start()

    async def _listen(self, opened: OpenCoordinator) -> None:
        settings = self._settings
        server = grpc.aio.server(options=(*OPTIONS, *KEEPALIVE), maximum_concurrent_rpcs=MAX_CALLS)
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
    def coordinator(self) -> Coordinator:
        assert self._open is not None, "not started"
        return self._open.coordinator

    @property
    def service(self) -> CoordinatorService:
        assert self._open is not None, "not started"
        return self._open.service

    @property
    def calls(self) -> Calls:
        """The handlers of calls, for their counters."""
        assert self._open is not None, "not started"
        return self._open.calls

    async def close(self, grace: float = 1.0) -> None:
        """Ends watchers, finishes calls within `grace` seconds, and closes the store."""
        if self._open is not None:
            await self._open.close()
        if self._server is not None:
            await self._server.stop(grace)


def new_id() -> str:
    """Returns a random cluster id."""
    return new_cluster_id(secrets.randbits(128))


class LocalCoordinator(CoordinatorCalls):
    """The same calls as a client's, made on the service itself. The caller needs no token."""

    def __init__(self, opened: OpenCoordinator, rng: random.Random | None = None) -> None:
        super().__init__("this daemon", opened.coordinator.cluster_id, rng or random.Random())
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
