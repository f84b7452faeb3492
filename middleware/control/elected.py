"""A coordinator that shares its store with others: it leads, or waits for the lock, or has no store.

  AWAY  ──connected──> STANDBY  ──lock──> LEADS
  STANDBY, LEADS  ──session lost──> AWAY          and connects again after a pause that doubles

Only LEADS answers calls. The others answer `Status` alone: a watch would hide from its caller that another
coordinator leads. They refuse the rest with the address of the one that leads. Each leadership has a
`Coordinator` of its own, which reads the store after its epoch is in it; each answer carries that epoch.
"""

from __future__ import annotations

import asyncio
import enum
import random
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from msgspec import Struct, field

import treecast
from treecast.middleware.api.admission import Admission, Refused
from treecast.middleware.api.call_auth import LEADER_KEY
from treecast.middleware.api.calls import Calls
from treecast.middleware.api.coordinator_client import SERVICE
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.lasting import BackOff
from treecast.middleware.api.rpc import Method
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .coordinator import Coordinator
from .postgres import Leader, PostgresStore
from .postgres_session import shown
from .service import CoordinatorService
from .stored_state import CoordinatorSettings

WAIT_SECONDS: Final = 1.0  # of one wait for the lock
BEAT_SECONDS: Final = 2.0  # between two confirmations of an idle coordinator
_LONGEST_PAUSE: Final = 2.0  # before it connects again

T = TypeVar("T")

_log = Log(__name__)


class Role(enum.Enum):
    AWAY = "has no store"
    STANDBY = "waits for the lock"
    LEADS = "leads"


class Event(enum.Enum):
    CONNECTED = "connected"
    LOCK = "lock"
    LOST = "session lost"


TRANSITIONS: Mapping[tuple[Role, Event], Role] = MappingProxyType(
    {
        (Role.AWAY, Event.CONNECTED): Role.STANDBY,
        (Role.AWAY, Event.LOST): Role.AWAY,
        (Role.STANDBY, Event.LOCK): Role.LEADS,
        (Role.STANDBY, Event.LOST): Role.AWAY,
        (Role.LEADS, Event.LOST): Role.AWAY,
    }
)


class ElectedSettings(Struct, frozen=True):
    """`database`: a URL. The rest as in `server.ServerSettings`."""

    database: str
    cluster_id: str
    token: JoinToken | None
    max_watchers: int
    stall: float
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)


class ElectedCoordinator:
    """The coordinator of one process, from `open` to `close`; `coordinator` while it leads."""

    def __init__(self, settings: ElectedSettings, clock: Callable[[], float]) -> None:
        """`about`, which may be set later, fills in what only the process knows about itself. `on_role` is
        told the role as text.
        """
        self._settings = settings
        self._clock = clock
        self._address = ""
        self._thread = ThreadPoolExecutor(1, "coordinator-lock")
        self._task: asyncio.Task[None] | None = None
        self._store: PostgresStore | None = None
        self._service: CoordinatorService | None = None
        self._said = self._told = ""
        self.cluster_id = settings.cluster_id
        self.coordinator: Coordinator | None = None
        self.role = Role.AWAY
        self.leader = Leader()
        self.problem = "it has not connected to its store yet"
        self.takeovers = 0
        self.store_losses = 0
        self._refused_writes = 0  # of earlier leaderships
        self.about: Callable[[pb.CoordinatorStatusResponse], None] = lambda status: None
        self.on_role: Callable[[str], None] = lambda text: None
        admission = Admission(settings.cluster_id, settings.token, secrets.token_bytes(16))
        self.calls = Calls(SERVICE, self._serving, admission, clock, settings.stall)

    @property
    def refused_writes(self) -> int:
        now = self.coordinator.refused_writes if self.coordinator is not None else 0
        return self._refused_writes + now

    async def open(self, address: str) -> None:
        """Connects, and takes part from then on. `address`: what other coordinators say of this one.

        Raises STORAGE if the first connection shows that an operator has to act; nothing is open then.
        """
        self._address = address
        try:
            await self._connect()
        except TreecastError as error:
            if error.fault is Fault.STORAGE:
                await self.close()
                raise
            await self._drop()
            self._lose(error)
        self._task = asyncio.create_task(self._run(), name="the coordinator's lead")

    async def close(self) -> None:
        """Ends watchers, finishes waiting commands, and releases the lock."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._drop()
        self._thread.shutdown()

    # --- the life of a session

    async def _run(self) -> None:
        back_off = BackOff(random.Random(), longest=_LONGEST_PAUSE)
        while True:
            try:
                await self._take_part(back_off)
            except TreecastError as error:
                self._lose(error)
            except Exception as error:
                _log.exception("coordinator gives up its lead")
                self._lose(TreecastError(Fault.INTERNAL, repr(error)))
            finally:
                await self._drop()
            await asyncio.sleep(back_off.pause())

    async def _take_part(self, back_off: BackOff) -> None:
        """Waits for the lock and leads, until the session is lost, which raises."""
        if self._store is None:
            await self._connect()
        store = self._store
        assert store is not None
        back_off.reset()
        while not await self._beside(store.lead, WAIT_SECONDS):
            self._note_leader(await self._beside(store.leader))
        loaded = await self._beside(store.load)
        coordinator = Coordinator(store, self._settings.coordinator, self._clock, loaded)
        self._lead(coordinator)
        await self._keep(coordinator)

    async def _connect(self) -> None:
        settings = self._settings
        store = PostgresStore(
            settings.database, _new_id, cluster_id=settings.cluster_id, address=self._address
        )
        self._store = store
        leader = await self._beside(store.connect)
        self._move(Event.CONNECTED)
        self._note_leader(leader)

    async def _keep(self, coordinator: Coordinator) -> None:
        expiring = asyncio.create_task(coordinator.watch_leases())
        try:
            while True:
                await coordinator.confirm()
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        await coordinator.ended.wait()
                except TimeoutError:
                    continue
        finally:
            expiring.cancel()
            await asyncio.gather(expiring, return_exceptions=True)

    async def _drop(self) -> None:
        """Ends the leadership, if any, and closes the session."""
        self._service = None
        coordinator, self.coordinator = self.coordinator, None
        store, self._store = self._store, None
        if coordinator is not None:
            self._refused_writes += coordinator.refused_writes
            await coordinator.close()
        elif store is not None:
            await self._beside(store.close)

    async def _beside(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs work of the store beside the loop. A cancelled caller leaves it to end by itself, in order."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    # --- roles

    def _move(self, event: Event) -> None:
        self.role = TRANSITIONS[self.role, event]
        self._tell()

    def _tell(self) -> None:
        text = self.role.value
        if self.role is Role.STANDBY and self.leader.address:
            text += f"; {self.leader.address} leads"
        if text != self._told:
            self._told = text
            self.on_role(text)

    def _lead(self, coordinator: Coordinator) -> None:
        settings = self._settings
        self.coordinator = coordinator
        self._service = CoordinatorService(coordinator, uuid.uuid4, settings.max_watchers)
        self._service.about = self._describe
        self.takeovers += 1
        self.problem = self._said = ""
        self.leader = Leader(coordinator.stored.epoch, self._address)
        self._move(Event.LOCK)
        _log.info("coordinator leads", epoch=coordinator.stored.epoch, revision=coordinator.stored.revision)

    def _note_leader(self, leader: Leader) -> None:
        self.problem = ""
        if leader != self.leader or self._said:
            self._said = ""
            _log.info("coordinator waits for the lock", leader=leader.address or None)
        self.leader = leader
        self._tell()

    def _lose(self, error: TreecastError) -> None:
        if self.role is not Role.AWAY:
            self.store_losses += 1
        self._move(Event.LOST)
        self.problem = (
            f"the coordinator does not decide, because it has no store: {error.detail}. Hosts go on with what"
            " they know; it connects again by itself"
        )
        if error.detail != self._said:
            self._said = error.detail
            _log.error("coordinator has no store and does not decide", error=error.detail)

    # --- calls

    def _serving(self, method: Method) -> Callable[[Any], Any]:
        service = self._service
        if service is None or self.coordinator is None:
            if method.name == "Status":
                return self._status
            raise self._refusal()
        call = getattr(service, method.attribute)
        return call if method.name == "Watch" else partial(_stamped, call, self.coordinator)

    def _refusal(self) -> Refused:
        leader = self.leader.address if self.role is Role.STANDBY else ""
        detail = f"this coordinator does not lead: {leader} does" if leader else self.problem
        return Refused(
            Fault.COORDINATOR_UNAVAILABLE,
            detail or "no coordinator leads yet: try again",
            "standby",
            ((LEADER_KEY, leader),),
        )

    async def _status(self, request: pb.CoordinatorStatusRequest) -> pb.CoordinatorStatusResponse:
        found = pb.CoordinatorStatusResponse(cluster_id=self.cluster_id, version=treecast.__version__)
        self._describe(found)
        return found

    def _describe(self, status: pb.CoordinatorStatusResponse) -> None:
        status.role, status.leader = self.role.value, self.leader.address
        status.store, status.refused_writes = shown(self._settings.database), self.refused_writes
        status.takeovers, status.store_losses = self.takeovers, self.store_losses
        if self.problem:
            status.problems.append(self.problem)
        self.about(status)


async def _stamped(call: Callable[[Any], Awaitable[Any]], coordinator: Coordinator, request: Any) -> Any:
    response = await call(request)
    response.epoch = coordinator.stored.epoch  # which the call may have raised
    return response


def _new_id() -> str:
    return uuid.uuid4().hex
