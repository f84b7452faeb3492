"""`BrokerlessHost`: a host without a broker, the agent's end of the fabric.

Like every host it owns a data directory and has an id, a lease and a port. It publishes and subscribes over
event streams. It reads and writes partitions of other hosts and may hold replicas of them. It knows the
definitions that agents share. It leads no partitions and is no home of groups or transactions.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from treecast.middleware.api.attachment import Attachment, name_is_taken
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import Position, TopicEntry
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.broker import DataDirectory, Membership
from treecast.middleware.broker.cluster import PartitionLeader
from treecast.middleware.broker.long_poll import LongPolls
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.pubsub import Message, PubSub, PubSubSettings
from treecast.middleware.broker.pubsub_host import HostPubSub
from treecast.middleware.broker.turn import Turn
from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.channel import ChannelSettings, listen_on_one_number
from treecast.middleware.fabric.edge import named_by, packet_bytes
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import interface_of
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicId, TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.model.wishes import Pattern, Wish
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import LOOK_MS, FsyncPolicy, LogSettings
from treecast.middleware.storage.tables import Tables

from .attaching import attach_request, count_by_clock, take_run
from .carrier_group import CarrierSettings
from .coordinator_link import CoordinatorLink
from .events.ports import EventSettings
from .fabric_host import FabricHost
from .neighbours import Endpoint, Neighbours, Port
from .partitions.ports import PartitionSettings
from .partitions.replicas import Replicas
from .queues.known import Edit, KnownDefinitions
from .view import ClusterView
from .view_store import ViewStore, stored_position

if TYPE_CHECKING:
    from treecast.middleware.api.trust_member import Member

_log = Log(__name__)
FIRST_SECONDS = 10.0  # how long a host with an empty view waits for the coordinator's first update


class ViewTopics:
    """Implements `partitions.ports.Topics` over the view."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._topics: dict[str, Topic] = {}
        view.topics.subscribe(self._changed)

    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        entry = self._view.topic_by_id(topic_id)
        if entry is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC_ID)
        return self._topics[entry.name]

    def _changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        if before is not None:
            self._topics.pop(before.name, None)
        if after is not None:
            config = TopicConfig.of(after.config)
            self._topics[after.name] = Topic(after.name, after.topic_id, len(after.partitions), config)


class FabricHostSettings(Struct, frozen=True):
    """Settings of a `BrokerlessHost`.

    `coordinator`: HOST:PORT of a daemon's control address or of a separate coordinator. `address`: the
    fabric's, TCP and UDP; port 0 picks a free port. `token`: the cluster's; None for a `member` of a secured
    cluster. `standby`: called with the reason while another host of this name is attached, or the coordinator
    is away; it returns when to ask again. None: that is refused.
    """

    name: str
    data: Path
    coordinator: str
    token: JoinToken | None
    address: Address = Address("127.0.0.1", 0)
    fabric: FabricSettings = FabricSettings()
    pubsub: PubSubSettings = PubSubSettings()
    fsync: FsyncPolicy = FsyncPolicy.INTERVAL
    events: EventSettings = EventSettings()
    member: Member | None = None
    standby: Callable[[TreecastError], Awaitable[None]] | None = None

    @property
    def cluster_id(self) -> str:
        if self.member is not None:
            return self.member.trust.identity.cluster_id
        assert self.token is not None
        return self.token.cluster_id


class OwnHost(Struct, frozen=True):
    """Implements `fabric_host.FabricHostParts`."""

    host: Host
    tables: Tables
    partitions: LocalPartitions
    clock: Callable[[], float]
    run: int
    polls: LongPolls
    pubsub: HostPubSub
    counters: Counters


class _LeadsNothing:
    """Implements `broker.partition.TransactionGuard`."""

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> asyncio.Future[None] | None:
        raise TreecastError(Fault.NOT_LEADER, "this host leads no partitions")


class BrokerlessHost:
    """A host without a broker, in use from `open` to `close`.

    `hub` takes subscriptions. Its journal keeps accepted messages until all hosts that want them have them.
    `turn` is the group commit of both. `definitions` are those of AMQP and of agents, as the coordinator told
    them.
    """

    def __init__(self, settings: FabricHostSettings, counters: Counters) -> None:
        self._settings = settings
        self._counters = counters
        self._opened: list[Callable[[], Awaitable[None] | None]] = []  # the steps of `close`, in reverse
        self.hub: PubSub
        self.turn: Turn
        self.link: CoordinatorLink
        self.fabric_host: FabricHost
        self.definitions: KnownDefinitions

    @property
    def member(self) -> Member | None:
        """This host's part in a secured cluster; None in another."""
        return self._settings.member

    async def open(self, prepare: Callable[[], None] | None = None) -> None:
        """Starts the host. Raises TreecastError, or OSError if the port is in use.

        `prepare` is called before other hosts are told of this host's interest and before anything is
        received: it subscribes again, and wants again, what an earlier run did. The caller must call `close`
        even after a failure.
        """
        settings = self._settings
        if settings.member is not None:
            self._opened.append(settings.member.close)
            await settings.member.open(settings.coordinator)
        directory = DataDirectory.open(settings.data, None, settings.cluster_id)
        self._opened.append(lambda: directory.close(clean=True))
        stream, datagrams = listen_on_one_number(settings.address)
        port = Port(Address(*stream.getsockname()[:2]), stream, datagrams)
        self._opened.append(port.close)
        self.link = await self._attach(directory, port.address)
        own = self._own(directory)
        self._compose(own, port)
        await self._start(own.tables)
        if prepare is not None:
            prepare()
        self._join_events()

    async def _attach(self, directory: DataDirectory, address: Address) -> CoordinatorLink:
        """Attaches to the coordinator.

        Raises COORDINATOR_UNAVAILABLE if a new host gets no answer. A host that was attached before goes on
        with its stored view.
        """
        settings, known = self._settings, directory.meta.membership
        if known is not None:
            count_by_clock(directory)
        client = (
            settings.member.client(settings.coordinator)
            if settings.member is not None
            else CoordinatorClient(settings.coordinator, settings.token)
        )
        self._opened.append(client.close)
        instance = known.instance if known is not None else secrets.token_hex(16)
        membership = Membership(settings.name, instance, settings.coordinator)
        mtu = packet_bytes(
            settings.fabric.mtu, interface_of(named_by(address.host, settings.fabric.advertised))
        )
        request = attach_request(directory, membership, address, leads_nothing=True, mtu=mtu)
        attachment = Attachment(
            client, request, lambda answer: take_run(attachment, directory, answer), directory.move_stamp
        )
        position = stored_position(directory.tables) if known is not None else Position()
        client.position = lambda: position
        try:
            await self._attached(attachment)
        except TreecastError as error:
            if known is None or error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                raise
        host_id = attachment.session.host_id if attachment.attached else directory.meta.host_id
        directory.join(settings.cluster_id, host_id, membership)
        attachment.start()
        return CoordinatorLink(client, attachment, ClusterView(), self._counters.relay)

    async def _attached(self, attachment: Attachment) -> None:
        """Attaches once; a standby when the name is free. It never goes on with its stored view: the other
        host may serve.
        """
        standby = self._settings.standby
        while True:
            try:
                await attachment.attach()
                return
            except TreecastError as error:
                away = error.fault is Fault.COORDINATOR_UNAVAILABLE
                if standby is None or not (away or name_is_taken(error)):
                    raise
                await standby(error)

    def _own(self, directory: DataDirectory) -> OwnHost:
        tables, flusher = Tables(directory.tables, self._settings.fsync), Flusher()
        log_settings, counters = LogSettings(fsync=self._settings.fsync), self._counters

        def open_log(path: str, config: TopicConfig, claim: Callable[[], None] | None = None) -> PartitionLog:
            now_ms = int(time.time() * 1000)
            return PartitionLog.open(path, config, log_settings, counters.storage, now_ms, claim=claim)

        partitions = LocalPartitions(
            directory.logs, open_log, flusher, _LeadsNothing(), counters.broker, time.time
        )
        partitions.sweep()
        self._opened += [tables.close, partitions.close, flusher.close]
        host = Host(directory.meta.host_id, self._settings.name)
        polls, fsync = LongPolls(asyncio.get_running_loop()), self._settings.fsync
        pubsub = HostPubSub(self._settings.pubsub, str(directory.pubsub), fsync, counters, time.time)
        self._opened.append(pubsub.close)
        self.hub, self.turn = pubsub.hub, pubsub.turn
        forcing = asyncio.create_task(_keep_forced(tables, pubsub, partitions, flusher))
        self._opened.append(lambda: _end(forcing))
        return OwnHost(host, tables, partitions, time.time, directory.run, polls, pubsub, counters)

    def _compose(self, own: OwnHost, port: Port) -> None:
        settings, link, counters = self._settings, self.link, self._counters
        trust = settings.member.trust if settings.member is not None else None
        token = trust.token if trust is not None else settings.token
        endpoint = Endpoint(port, token, ChannelSettings(), settings.fabric, trust=trust)
        neighbours = Neighbours(
            endpoint,
            own.host.host_id,
            own.run,
            settings.cluster_id,
            link.view,
            counters,
            own.pubsub.passes,
        )
        replicas = self._replicas(own, neighbours)
        self.definitions = KnownDefinitions(link, neighbours.methods)
        self.fabric_host = FabricHost(
            own, link, neighbours, replicas, CarrierSettings(), agent=True, events=settings.events
        )

    def _replicas(self, own: OwnHost, neighbours: Neighbours) -> Replicas:
        """Returns the part for partitions of other hosts; a subclass may add partitions that it leads."""
        link = self.link
        return Replicas(
            own,
            ViewTopics(link.view),
            link.view,
            neighbours.channels,
            neighbours.methods,
            neighbours.fabric,
            PartitionSettings(),
            self._counters.relay,
            link.directory,
        )

    async def _start(self, tables: Tables) -> None:
        link = self.link
        link.load(ViewStore(tables))
        self._opened.append(lambda: link.close(detach=True))
        link.start()
        if link.attached:
            await link.first_seen(FIRST_SECONDS)
        self.fabric_host.distribution.interest.hold()  # released once event streams can be opened
        for life in self.fabric_host.lives():
            self._opened.append(life.close)
            await life.start()

    def _join_events(self) -> None:
        distribution, events = self.fabric_host.distribution, self.fabric_host.events
        events.begin()
        self.hub.use_reach(events)
        self._opened.append(distribution.leave_events)
        distribution.join_events(events)

    async def close(self) -> None:
        """Stops the host. Safe to call twice."""
        while self._opened:
            closing = self._opened.pop()()
            if closing is not None:
                await closing

    # --- operations

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        """Publishes to local subscribers and all hosts that want the topic. `topic`: an MQTT topic name."""
        self.hub.clock.wall = time.time()
        message = Message(topic.encode(), payload, qos)
        self.hub.publish(message, self.hub.routes.targets(message.topic), None)

    async def wanted(self) -> None:
        """Returns when all reachable hosts know the subscriptions of this host, or after a time-out."""
        interest = self.fabric_host.distribution.interest
        await interest.confirmed(interest.version)

    def hold(self, held: bool) -> None:
        """Takes nothing from other hosts while `held`: they keep what they owe this host."""
        receiving = self.fabric_host.events.receiving
        if held:
            receiving.hold()
        else:
            receiving.release()

    @property
    def owed_bytes(self) -> int:
        """The size of all messages that other hosts have not acknowledged."""
        streams = self.fabric_host.events.sending
        return sum(promise.part.size for stream in streams for promise in stream.promises)

    # --- what agents want of each other

    def want(self, pattern: Pattern) -> None:
        """Announces one more pattern of topics, as levels, that begins as `pubsub.AGENTS` does."""
        self.fabric_host.distribution.interest.want(Wish(pattern))

    def unwant(self, pattern: Pattern) -> None:
        """Takes back what `want` announced."""
        self.fabric_host.distribution.interest.unwant(Wish(pattern))

    def wanted_by_others(self) -> dict[int, set[Pattern]]:
        """Returns the patterns of each other host, also of hosts that are away."""
        interest = self.fabric_host.distribution.interest
        return {host: interest.of(host) for host in interest.hosts()}

    def on_wanted_by_others(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of what other hosts want."""
        self.fabric_host.events.wishes.on_others = listener

    # --- definitions

    def defined(self, prefix: str) -> dict[str, bytes]:
        """Returns the definitions whose keys begin with `prefix`, as last heard of the coordinator."""
        return {one.key: one.value for one in self.definitions.all() if one.key.startswith(prefix)}

    async def define(self, key: str, value: bytes) -> bytes:
        """Makes a definition known to all hosts, unless there is one with this key, which then stays. Returns
        the one that holds.

        Raises COORDINATOR_UNAVAILABLE, TIMED_OUT, or the coordinator's refusal.
        """
        await self.definitions.write([Edit(key, value, replace=False)])
        return self.defined(key).get(key, value)

    async def redefine(self, key: str, value: bytes) -> None:
        """Makes a definition known to all hosts, whatever was there. Raises as `define`."""
        await self.definitions.write([Edit(key, value, replace=True)])

    async def undefine(self, key: str) -> None:
        """Removes a definition at all hosts. Raises as `define`."""
        await self.definitions.write([Edit(key, None, replace=True)])

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """Returns a partition's leader. Raises UNKNOWN_TOPIC if there is no such partition."""
        return self.fabric_host.replicas.partition(topic, index)


async def _keep_forced(
    tables: Tables, pubsub: HostPubSub, partitions: LocalPartitions, flusher: Flusher
) -> None:
    """Forces to the disk what the stores have written, at the interval of the fsync policy, for ever: what
    one store refuses, as without a free descriptor, is tried again, and keeps no other one waiting.
    """
    due: tuple[Callable[[], object], ...] = (
        pubsub.force,
        tables.force,
        lambda: flusher.flush_due([one.log for one in partitions], int(time.time() * 1000)),
    )
    while True:
        await asyncio.sleep(LOOK_MS / 1000)
        for force in due:
            try:
                force()
            except Exception:
                _log.exception("what was written waits for the disk")


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
