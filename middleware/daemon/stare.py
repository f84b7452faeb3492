"""STARE on a host of a cluster: its middleware, and the replica controller if this host is its home.

The controller has one home, as groups have: the host that asked the coordinator first, or the next one that
asks after that host has been away for long. All others learn it from the view.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from treecast.middleware.api.entries import HomeEntry, HomeKind, HostEntry, Presence
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.api.v1 import coordinator_pb2 as coordinator_pb
from treecast.middleware.control.replica_service import ReplicaService
from treecast.middleware.control.replicas.settings import ReplicaSettings
from treecast.middleware.control.replicas.vnf_ids import VnfIds
from treecast.middleware.fabric.channel import Method, Natural, Nothing
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.stare.edge import StareEdge
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.cluster import RelayCluster
from treecast.middleware.relay.coordinator_link import CoordinatorLink
from treecast.middleware.relay.neighbours import Neighbours

_log = Log(__name__)

HOME: Final = "stare"  # the id of the replica controller's home
PREFIX: Final = "$stare"  # STARE's states are not topics of other faces and need separate ids
_ASK_AGAIN: Final = 5.0  # seconds


class StareSignal(Struct, frozen=True, array_like=True):
    """A notice with a signal as body (`wire.stare_signals`). `epoch`: of the replica controller's home, as
    known to the sender; `run`: of the sending host.
    """

    epoch: Natural
    run: Natural


TO_CONTROLLER: Final = Method(100, StareSignal, Nothing)
FROM_CONTROLLER: Final = Method(101, StareSignal, Nothing)


class JoinedStare:
    """STARE on a host of a cluster. Requires a started relay, whose channels carry its calls."""

    def __init__(
        self,
        cluster: RelayCluster,
        link: CoordinatorLink,
        counters: Counters,
        run: int,
        fabric: FabricSettings,
    ) -> None:
        self._link = link
        self._view = link.view
        self._counters = counters
        self._host_id = cluster.host.host_id
        self._run = run
        self._fabric = fabric
        self._neighbours = cluster.neighbours
        self._home: HomeEntry | None = None
        self._service: ReplicaService | None = None
        self._coming: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._closed = False
        self._states: dict[tuple[str, ...], int] = {}  # held by this host
        self.edge = StareEdge(StareSettings(), random.Random(), counters.stare, self._state_of)
        methods = self._neighbours.methods
        methods.register(TO_CONTROLLER, self._to_controller)
        methods.register(FROM_CONTROLLER, self._from_controller)

    # --- life

    def _moved(self, here: Neighbours) -> None:
        try:
            self.edge.move(here.fabric.named)
        except OSError as error:
            _log.warning("states cannot be sent from the new address", error=error)

    def start(self) -> None:
        fabric = self._neighbours.fabric
        try:
            if not self._fabric.carriers:
                raise OSError("multicast is switched off")
            address = fabric.named, fabric.address[1]
            self.edge.open_network(address, self._fabric, self._counters.fabric)
            self._neighbours.on_moved.append(self._moved)
        except OSError as error:
            _log.warning("states are not exchanged with other hosts", error=error)
        self.edge.start()
        self.edge.send = self._send
        self._view.homes.subscribe(self._home_moved)
        self._view.hosts.subscribe(self._host_moved)
        channels = self._neighbours.channels
        before = channels.on_up

        def up(host: int, incarnation: int) -> None:
            if before is not None:
                before(host, incarnation)
            self._host_up(host)

        channels.on_up = up
        self._use(self._view.replicas_home(HOME))
        work = lasting("search for the home of the replica controller", self._ask, BackOff(random.Random()))
        self._asking = asyncio.create_task(work, name="home of the replica controller")

    async def close(self) -> None:
        self._closed = True
        tasks = [task for task in (self._asking, self._coming) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._drop_service()
        self.edge.close()

    # --- state ids

    async def _state_of(self, levels: Sequence[str]) -> int:
        name = PREFIX, *levels
        known = self._states.get(name)
        if known is None:
            answer = await self._link.client.allot_state(self._link.session, name)
            known = self._states[name] = answer.state_id
        return known

    # --- where the controller is

    async def _ask(self) -> None:
        """Asks for the controller's home: the first host that asks becomes it, or a later one when it has
        been away for long.
        """
        while True:
            home = self._home
            host = self._view.host(home.host_id) if home is not None else None
            if host is None or host.presence is not Presence.ATTACHED:
                try:
                    found = await self._link.client.replicas_home(self._link.session, HOME)
                    self._use(HomeEntry(HomeKind.REPLICAS, HOME, found.host_id, found.epoch))
                except TreecastError as error:
                    _log.info("home of the replica controller cannot be found", error=error)
            await asyncio.sleep(_ASK_AGAIN)

    def _home_moved(self, before: HomeEntry | None, after: HomeEntry | None) -> None:
        entry = after or before
        if entry is not None and entry.kind is HomeKind.REPLICAS and entry.id == HOME:
            self._use(after)

    def _use(self, home: HomeEntry | None) -> None:
        if self._closed or home is None or (self._home is not None and home.epoch <= self._home.epoch):
            return
        self._home = home
        self._drop_service()
        if home.host_id == self._host_id:
            self._coming = asyncio.create_task(self._become_home(home.epoch), name="replica controller")
        else:
            self.edge.controller_changed()

    async def _become_home(self, epoch: int) -> None:
        """Becomes the home, with the VNF ids of the coordinator's store."""
        entry = coordinator_pb.HomeEntry(
            kind=coordinator_pb.HOME_KIND_REPLICAS, id=HOME, host_id=self._host_id, epoch=epoch
        )
        while True:
            try:
                items = await self._link.client.get_home_state(self._link.session, entry)
                break
            except TreecastError as error:
                if error.fault is Fault.NOT_COORDINATOR:
                    return
                _log.info("VNF ids cannot be read", error=error)
                await asyncio.sleep(_ASK_AGAIN)
        self._service = service = ReplicaService(
            ReplicaSettings(),
            random.Random(),
            self._counters.replicas,
            VnfIds(items),
            send=lambda host, data: self._answer(host, epoch, data),
            want=self.edge.want,
            unwant=self.edge.unwant,
            store=lambda changes: self._store(epoch, changes),
        )
        service.start()
        self.edge.copy = service.copy
        self.edge.controller_changed()
        _log.info("host has the replica controller", epoch=epoch)

    def _drop_service(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        if self._service is not None:
            self.edge.copy = None
            self._service.close()
            self._service = None

    async def _store(self, epoch: int, changes: Mapping[bytes, bytes | None]) -> None:
        items = [coordinator_pb.HomeItem(key=key, value=value) for key, value in changes.items()]
        write = coordinator_pb.HomeWrite(
            kind=coordinator_pb.HOME_KIND_REPLICAS, id=HOME, epoch=epoch, items=items
        )
        refused = await self._link.client.put_home_state(self._link.session, [write])
        for error in refused.values():
            raise error

    # --- hosts

    def _host_up(self, host: int) -> None:
        """Repeats signals to the controller that were lost when the channel broke."""
        if self._home is not None and host == self._home.host_id:
            self.edge.controller_changed()

    def _host_moved(self, before: HostEntry | None, after: HostEntry | None) -> None:
        if self._service is None or before is None or before.host_id == self._host_id:
            return
        if after is None or after.presence is Presence.DETACHED:
            self._service.host_gone(before.host_id)

    # --- signals

    def _send(self, data: bytes) -> None:
        """Sends a signal to the controller. One that cannot be sent is repeated later."""
        if self._home is None:
            return
        if self._home.host_id != self._host_id:
            head = StareSignal(self._home.epoch, self._run)
            self._neighbours.methods.tell(self._home.host_id, TO_CONTROLLER, head, data)
        elif self._service is not None:
            self._service.signal(self._host_id, self._run, data)

    def _answer(self, host: int, epoch: int, data: bytes) -> None:
        if host == self._host_id:
            self.edge.signal(data)
        else:
            head = StareSignal(epoch, self._run)
            self._neighbours.methods.tell(host, FROM_CONTROLLER, head, data)

    def _to_controller(self, host: int, request: StareSignal, body: memoryview) -> tuple[Nothing, Buffer]:
        if self._service is not None:
            self._service.signal(host, request.run, body)
        return Nothing(), b""

    def _from_controller(self, host: int, request: StareSignal, body: memoryview) -> tuple[Nothing, Buffer]:
        if self._home is not None and host == self._home.host_id and request.epoch >= self._home.epoch:
            self.edge.signal(body)
        return Nothing(), b""
