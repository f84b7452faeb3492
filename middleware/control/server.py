"""`CoordinatorServer`: a coordinator on an address, from `start` to `close`."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import KEY_BYTES, JoinToken
from treecast.middleware.api.rpc import OPTIONS
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.fsync import FsyncPolicy

from .admission import Admission
from .calls import Calls
from .coordinator import Coordinator, CoordinatorSettings
from .service import SERVICE, CoordinatorService
from .store import SqliteStore, Store

_OPTIONS = (
    *OPTIONS,
    ("grpc.keepalive_time_ms", 20_000),  # finds hosts that went without a word
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)
_MAX_CALLS = 20_000  # at once; what is beyond is refused by gRPC

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`path`: the store's file. `token` None: calls are not authenticated. Times in seconds.

    `cluster_id`: empty takes the token's, else what the store says, else a new one.
    """

    address: Address
    path: Path
    token: JoinToken | None
    cluster_id: str = ""
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    fsync: FsyncPolicy = FsyncPolicy.BATCH
    max_watchers: int = 10_000
    stall: float = 30.0  # a watcher that reads nothing for this long is dropped


class CoordinatorServer:
    """`address` has the port that was picked, once it is started."""

    def __init__(self, settings: ServerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._coordinator: Coordinator | None = None
        self._calls: Calls | None = None
        self._server: grpc.aio.Server | None = None
        self._expiry: asyncio.Task[None] | None = None
        self.address = settings.address

    async def start(self) -> None:
        """Opens the store and listens. Raises TreecastError with what to do; then nothing is left open."""
        store = self._open_store()
        try:
            coordinator = Coordinator(store, self._settings.coordinator, self._clock)
        except TreecastError:
            store.close()
            raise
        try:
            await self._listen(coordinator)
        except BaseException:
            await coordinator.close()
            raise
        self._coordinator = coordinator
        self._expiry = asyncio.create_task(self._expire(coordinator))

    def _open_store(self) -> Store:
        settings, token = self._settings, self._settings.token
        wanted = settings.cluster_id or (token.cluster_id if token else "")
        if token is not None and token.cluster_id != wanted:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"the join token is of cluster {token.cluster_id}, and this is to be {wanted}: take its own",
            )
        return SqliteStore(settings.path, new_id, cluster_id=wanted, fsync=settings.fsync)

    async def _listen(self, coordinator: Coordinator) -> None:
        settings = self._settings
        admission = Admission(coordinator.cluster_id, settings.token, secrets.token_bytes(16))
        service = CoordinatorService(coordinator, uuid.uuid4, settings.max_watchers)
        self._calls = Calls(SERVICE, service, admission, self._clock, settings.stall)
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
        server.add_generic_rpc_handlers((self._calls.handler,))
        try:
            port = server.add_insecure_port(str(settings.address))
        except RuntimeError as error:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"the coordinator cannot listen on {settings.address}: is the port in use, is the host ours?",
            ) from error
        self.address = Address(settings.address.host, port)
        self._server = server
        await server.start()

    async def _expire(self, coordinator: Coordinator) -> None:
        """Looks at leases often enough for no look to be longer than `StateSettings.longest_step`."""
        state = self._settings.coordinator.state
        pause = min(1.0, state.lease / 4, state.longest_step / 2)
        while True:
            await asyncio.sleep(pause)
            try:
                await coordinator.expire_leases()
            except Exception:
                _log.exception("leases could not be looked at")

    @property
    def coordinator(self) -> Coordinator:
        assert self._coordinator is not None, "not started"
        return self._coordinator

    @property
    def calls(self) -> Calls:
        """For its counters."""
        assert self._calls is not None, "not started"
        return self._calls

    async def close(self, grace: float = 1.0) -> None:
        """Ends watchers, finishes calls within `grace` seconds, and closes the store."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        if self._coordinator is not None:
            await self._coordinator.close()
        if self._server is not None:
            await self._server.stop(grace)


def new_id() -> str:
    """A random cluster id in Kafka's spelling: 22 characters of URL-safe base64 of a UUID."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def new_token(cluster_id: str, key_id: int = 1) -> JoinToken:
    """A token with a fresh key."""
    return JoinToken(cluster_id, key_id, secrets.token_bytes(KEY_BYTES))
