"""Hosts of one cluster in one process whose hubs share messages: real channels, fabrics and logs."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.unit.fabric.channel.hosts import QUICK
from tests.unit.fabric.channel.hosts import kill as kill_channels
from tests.unit.fabric.edges import KEYS, lose

from treecast.middleware.api.discovery import Address
from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    Subscriber,
    Subscription,
    Target,
    Waiter,
    open_journal,
)
from treecast.middleware.broker.pubsub_host import LoopEdge
from treecast.middleware.broker.turn import Turn
from treecast.middleware.fabric.channel import Channels, Methods
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import (
    ChannelCounters,
    EventCounters,
    FabricCounters,
    PubSubCounters,
    RelayCounters,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.carrier_choice import CarrierChoice
from treecast.middleware.relay.carrier_group import CarrierSettings
from treecast.middleware.relay.events.events import Events
from treecast.middleware.relay.events.ports import EventSettings
from treecast.middleware.relay.interest import Interest, InterestSettings
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

PATIENCE = 60.0  # seconds until a test gives up; no test asserts it
LOOPBACK = Address("127.0.0.1", 0)
CLUSTER = "TmFtZU9mQUNsdXN0ZXIwMA"
KEY = b"a key of the channel, 32 bytes.."
STREAM = StreamSettings(
    mtu=1400, report_every=0.01, report_idle=0.2, round_trip=0.002, silent_after=2.0, replay_stall=0.2
)
SETTINGS = EventSettings(open_wait=5.0, retry=0.05, tick=0.02, over=0.5, accounts_every=0.05)


async def until(what: Callable[[], object]) -> None:
    """Waits until `what` is true."""
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Client(Subscriber):
    """A subscriber that keeps the messages that it gets."""

    def __init__(self, host: TestHost) -> None:
        super().__init__(host.hub.routes.next_serial())
        self.host = host
        self.got: list[tuple[str, bytes, int]] = []
        self.messages: list[Message] = []

    def take(self, message: Message, target: Target) -> None:
        self.messages.append(message)
        self.got.append((message.topic.decode(), message.payload, min(message.qos, target.qos)))

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _ in self.got]

    async def subscribe(self, *filters: str, qos: int = 2) -> None:
        """Returns when the subscription is confirmed, which is when SUBACK is sent."""
        for filter in filters:
            self.host.hub.subscribe(Subscription(self, filter.encode(), qos))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Confirmed(done)
        if not self.host.hub.reach.known(waiter):
            await done

    async def share(self, name: str, filter: str) -> None:
        """Does the same as a member of a shared subscription."""
        self.host.hub.shares.subscribe(name.encode(), Subscription(self, filter.encode(), 2))
        await self.subscribe()

    def leave(self, name: str, filter: str) -> None:
        assert self.host.hub.shares.unsubscribe(name.encode(), self, filter.encode())

    def unsubscribe(self, filter: str) -> None:
        assert self.host.hub.unsubscribe(self, filter.encode())


class _Confirmed(Waiter):
    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done

    def confirmed(self) -> None:
        self.done.set_result(None)


class TestHost:
    """One host: hub, journal, turn, interest, event streams; no face."""

    __test__ = False

    def __init__(self, world: World, number: int, run: int) -> None:
        self.world = world
        self.number = number
        self.run = run
        self.counters = EventCounters()
        self.interest_counters = RelayCounters()
        self.hub = PubSub(PubSubSettings(), PubSubCounters())
        folder = world.root / str(number)
        journal, highest = open_journal(
            str(folder),
            world.disks.get(number) or Disk(),
            self.hub.settings,
            self.hub.counters,
            self.hub.retained,
            syncs=world.fsync is not FsyncPolicy.NEVER,
        )
        self.journal = journal
        self.hub.use_journal(journal)
        self.hub.routes.begin_serials(highest)
        self.turn = Turn(world.fsync, LoopEdge(asyncio.get_running_loop()))
        self.turn.add_store(journal)
        self.tables = Tables(world.root / f"tables-{number}.sqlite", FsyncPolicy.NEVER)
        self.events: Events | None = None
        self.choice: CarrierChoice | None = None

    async def start(self) -> None:
        self.methods = Methods()
        rng = random.Random(self.number * 1000 + self.run)
        self.channels = Channels(
            self.number, self.run, CLUSTER, KEY, QUICK, ChannelCounters(), rng, self.methods.handle
        )
        self.methods.use(self.channels)
        self.fabric = Fabric(
            self.number, FabricSettings(stream=STREAM, mtu=1500), KEYS, FabricCounters(), rng
        )
        await self.fabric.start(("127.0.0.1", 0))
        if self.world.loss:
            lose(self.fabric, self.number, self.world.loss)
        self.interest = Interest(self.methods, InterestSettings(confirm=10.0), self.interest_counters)
        self.interest.hold()
        self.channels.on_up = self._up
        self.channels.on_down = self._down
        self.ups: set[int] = set()
        self.address = await self.channels.start(LOOPBACK)

    def share(self) -> None:
        """Starts event streams, as after the face has resumed its sessions."""
        self.events = Events(
            self.hub,
            self.turn,
            self.run,
            self.interest,
            self.methods,
            self.fabric,
            self.counters,
            lambda: self.hub.clock.wall,
            HomesOf(self.world, self.number),
            self.world.settings,
            self.tables,
        )
        self.hub.clock.wall = 1_700_000_000.0
        self.events.begin()
        self.hub.use_reach(self.events)
        self.events.start(self.ups, self.world.cluster)
        if self.world.carriers is not None:
            self._carry(self.world.carriers)

    def _carry(self, settings: CarrierSettings) -> None:
        """Lets streams go by groups."""
        world, rng = self.world, random.Random(self.number)
        self.choice = CarrierChoice(
            self.fabric, self.methods, world.allot, world.release, settings, self.interest_counters, rng
        )
        assert self.events is not None
        self.choice.carry(self.events.sending)
        self.choice.start()

    def _up(self, host: int, run: int) -> None:
        self.ups.add(host)
        self.interest.host_up(host)
        if self.choice is not None:
            self.choice.host_up(host)
        if self.events is not None:
            self.events.host_up(host)

    def _down(self, host: int) -> None:
        self.ups.discard(host)
        self.interest.host_down(host)
        if self.events is not None:
            self.events.host_down(host)

    # --- called by faces

    def end_turn(self) -> None:
        self.turn.end()

    def client(self) -> Client:
        return Client(self)

    def publish(self, topic: str, payload: bytes, qos: int = 0, **more: Any) -> int:
        """Returns how many subscribers took the message."""
        message = Message(topic.encode(), payload, qos, **more)
        return self.hub.publish(message, self.hub.routes.targets(message.topic), None)

    @property
    def streams(self) -> list[Any]:
        assert self.events is not None
        return list(self.events.sending)

    # --- stop and kill

    async def stop(self) -> None:
        if self.choice is not None:
            await self.choice.close()
        if self.events is not None:
            await self.events.close()
        await self.interest.close()
        await self.channels.close()
        self.fabric.close()
        self.turn._stores.clear()
        assert self.journal.flush()
        self.journal.close()
        self.tables.close()

    def kill(self, *, stored: bool = True) -> None:
        """Kills the host. `stored`: the journal was written before."""
        kill_channels(self.channels)
        self.fabric.close()
        choice = self.choice
        for task in (*self.interest._tasks, *(choice._tasks if choice is not None else ())):
            task.cancel()
        if choice is not None and choice._timer is not None:
            choice._timer.cancel()
        if self.events is not None:
            sending, receiving = self.events.sending, self.events.receiving
            for task in sending._tasks:
                task.cancel()
            sending.accounts.close()
            for timer in (sending._timer, receiving._timer):
                if timer is not None:
                    timer.cancel()
        self.turn._departures.clear()
        self.turn._speakers.clear()
        self.turn._asked.clear()
        self.turn._gathered.clear()
        self.turn._stores.clear()
        if stored:
            assert self.journal.flush()
        self.journal.log.close()
        self.tables.close()


class HomesOf:
    """The coordinator as one host sees it: the first host that asks is the home."""

    def __init__(self, world: World, host: int) -> None:
        self.world = world
        self.host = host

    def known(self, id: str) -> int:
        return self.world.homes.get(id, 0)

    async def home(self, id: str, *, ask: bool) -> int:
        await asyncio.sleep(0)
        if self.world.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        return self.world.homes.setdefault(id, self.host)


class World:
    """Hosts by number; starting a number again begins the host's next run."""

    def __init__(self, root: Path, *, loss: float = 0.0, settings: EventSettings = SETTINGS) -> None:
        self.root = root
        self.loss = loss
        self.settings = settings
        self.hosts: dict[int, TestHost] = {}
        self.runs: dict[int, int] = {}
        self.homes: dict[str, int] = {}  # of shared subscriptions
        self.away = False  # the coordinator is away
        self.cluster: set[int] | None = None  # its hosts, if a starting host is told
        self.carriers: CarrierSettings | None = None
        self.fsync = FsyncPolicy.NEVER
        self.disks: dict[int, Disk] = {}  # disks other than plain ones
        self.states: dict[tuple[str, ...], int] = {}

    async def allot(self, levels: Sequence[str]) -> int:
        """Returns a state id, as the coordinator does."""
        if self.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        return self.states.setdefault(tuple(levels), 320_000 + os.getpid() % 10_000 + len(self.states))

    async def release(self, state_id: int) -> None:
        """Releasing has no effect here."""

    async def start(self, *numbers: int, share: bool = True) -> list[TestHost]:
        started = []
        for number in numbers:
            self.runs[number] = self.runs.get(number, 0) + 1
            host = self.hosts[number] = TestHost(self, number, self.runs[number])
            await host.start()
            started.append(host)
        for one in self.hosts.values():
            for other in self.hosts.values():
                if one is not other:
                    one.channels.set_host(other.number, other.address)
                    one.fabric.set_host(other.number, other.fabric.address)
        if share:
            for host in started:
                host.share()
        await until(lambda: all(self._sees(host) for host in self.hosts.values()))
        return started

    def _sees(self, host: TestHost) -> bool:
        others = [other for other in self.hosts.values() if other is not host]
        up = all(host.channels.is_up(other.number) for other in others)
        return up and (host.events is None or host.interest.known)

    def kill(self, number: int, *, stored: bool = True) -> None:
        self.hosts.pop(number).kill(stored=stored)

    async def close(self) -> None:
        for host in self.hosts.values():
            await host.stop()
