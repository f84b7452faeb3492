"""`MosquittoAgent`: the agent beside one Mosquitto, from `start` to `close`.

    broker --publishes--> ClientSession -> Inbound --+
                                          hub of a BrokerlessHost -- fabric -- other agents, daemons
    broker <--publishes-- SessionState <- Outbound --+

One connection leads to the broker, under a client id that belongs to the cluster, and the broker keeps its
session: what it has for the cluster waits there while the agent is away. The agent holds a lock at the broker
(`lock`): a second agent of the same cluster refuses to start.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from typing import Final

from msgspec import Struct

from treecast.agents.common.bounds import Room, Spool
from treecast.agents.common.life import (
    SiteLife,
    StartRefused,
    host_settings,
    owed_messages,
    sites_of,
    spooled_bytes,
    troubles_of,
)
from treecast.agents.common.status import AgentStatus
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.model.counters import Counters
from treecast.middleware.relay.brokerless import BrokerlessHost
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Publish, Unsubscribe, Will
from treecast.shims.mqtt.restoring import restore
from treecast.shims.mqtt.session_connection import ConnectionState
from treecast.shims.mqtt.session_output import UNPLUGGED, Edge, Outputs
from treecast.shims.mqtt.session_state import SessionState
from treecast.shims.mqtt.sessions import Sessions
from treecast.shims.mqtt.settings import MqttSettings

from .codec import hop_property
from .connection import ConnectionLost, MqttConnection, Spoken
from .inbound import Inbound
from .lock import lacks_version, lock_topic, look, older
from .outbound import Outbound
from .session import ClientSession, Granted, LogIn, kept, missing
from .settings import MosquittoAgentSettings
from .topics import IN, OUT, TopicMap

KIND: Final = "mosquitto"
_BROKER: Final = "broker"
_SUBSCRIPTIONS: Final = "subscriptions"
_UNSUBSCRIBE_ID: Final = 0xFFFE
_LOOK_EVERY: Final = 1.0  # seconds between looks at the bounds
_DRAIN_SECONDS: Final = 30.0
_LOCK_SECONDS: Final = 3.0  # how long the lock of an agent that has just ended is waited for
_NO_LIMIT: Final = 65_535  # levels of a topic


class Memory(Struct):
    """The filters of the broker's session, with their QoS."""

    filters: dict[str, int] = {}


class MosquittoAgent:
    """One agent. All is called on one event loop."""

    def __init__(self, settings: MosquittoAgentSettings) -> None:
        """Raises SettingsError."""
        settings.check()
        agent, broker = settings.agent, settings.mosquitto
        self._broker = broker
        self._tls: ssl.SSLContext | None = broker.tls_context()
        self._cluster = agent.cluster_id[:8]
        self._out, self._in = TopicMap(broker.rules, OUT), TopicMap(broker.rules, IN)
        self._counters = Counters()
        self.life = SiteLife(agent, self)
        self._agent = agent
        self.counters = self.life.counters
        # The bound on what the broker is owed is `Room`'s: nothing is dropped from the queue.
        self.host = BrokerlessHost(host_settings(agent, 4 * agent.spool_bytes + (512 << 20)), self._counters)
        self._log_in = self._first_log_in()
        self._sessions: Sessions
        self._front: Sessions
        self._state: SessionState
        self._inbound: Inbound
        self._outbound: Outbound
        self._outputs: Outputs
        self._spoken: Spoken
        self._spool = Spool(agent.spool_bytes, lambda: self.host.owed_bytes)
        self._connection: MqttConnection | None = None
        self._serving = False
        self._held = False
        self._over = asyncio.Event()
        self._reason = ""
        self._granted: asyncio.Future[Granted | None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._back_off = BackOff(random.Random())  # nosec B311  # pauses, no secrets

    def _first_log_in(self) -> LogIn:
        broker = self._broker
        return LogIn(
            f"treecast-agent-{self._cluster}",
            V311 if broker.protocol == "3.1.1" else V5,
            broker.user,
            broker.secret,
            broker.keep_alive,
            broker.receive_maximum,
            Will(lock_topic(self._cluster).encode(), b"", 1, True),
        )

    @property
    def admin_address(self) -> str:
        return self.life.admin_address

    # --- life

    async def start(self) -> None:
        """Joins the cluster and connects to the broker. Raises StartRefused, TreecastError or OSError.

        A broker that is away is waited for beside: what other sites send it is stored meanwhile. The caller
        must call `close` even after a failure.
        """
        await self.host.open(self._prepare)
        self.host.turn.add_speaker(self._spoken)
        await self.life.start(self.host)
        await self._take_lock()
        self._tasks = [
            asyncio.create_task(lasting("broker", self._keep, self._back_off), name="broker"),
            asyncio.create_task(lasting("bounds", self._look_on, self._back_off), name="bounds"),
        ]

    def _prepare(self) -> None:
        """Takes up what an earlier run left, before other hosts are told anything."""
        hub, agent, loop = self.host.hub, self._agent, asyncio.get_running_loop()
        hub.clock.wall = time.time()
        settings, rng = MqttSettings(max_levels=_NO_LIMIT), random.Random()  # nosec B311  # no secrets
        self._outputs = Outputs(self.host.turn.ask)
        self._spoken = Spoken(self._outputs, self._look_at_bounds)
        self._sessions = Sessions(hub, settings, rng)
        restore(self._sessions, loop.time())
        self._state = self._kept_state(loop.time())
        hop = hop_property(self._cluster, agent.name) if self._broker.hops else b""
        room = Room(agent.spool_bytes, self.host.hold)
        self._outbound = Outbound(hub, self._in, self._state, hop, self.counters, room)
        self._inbound = Inbound(hub, self._outbound, self._out, self._cluster, self._spool, self.counters)
        self._front = Sessions(self._inbound.front, settings, rng)
        self._outbound.subscribe()

    def _kept_state(self, now: float) -> SessionState:
        """Returns the state of the broker's session: an earlier run's, or a new one."""
        connection = ConnectionState(self.host.hub, self._outputs, UNPLUGGED, now, self._sessions.identities)
        opened = self._sessions.open(connection, kept(self._log_in.client_id), now)
        connection.state = opened.state
        self._sessions.closed(connection, now, with_will=False)
        return opened.state

    async def close(self) -> None:
        """Stops in order. What is not acknowledged stays in the journal. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._connection is not None:
            self._say_lock(self._connection, b"")
            await self._connection.close()
            self._connection = None
        if hasattr(self, "_spoken"):
            self.host.turn.remove_speaker(self._spoken)
        await self.life.close()
        await self.host.close()

    # --- the broker

    async def _take_lock(self) -> None:
        """Raises StartRefused if another site's agent is connected to the broker."""
        name, deadline = self._agent.name, asyncio.get_running_loop().time() + _LOCK_SECONDS
        while True:
            try:
                found = await look(
                    self._broker.server,
                    self._tls,
                    self._log_in,
                    self._cluster,
                    {},
                    falls_back=self._falls_back,
                )
            except ConnectionLost as error:
                self.life.note(_BROKER, str(error))
                return
            if found.holder in ("", name):
                return
            if asyncio.get_running_loop().time() > deadline:
                topic = lock_topic(self._cluster)
                raise StartRefused(
                    f"agent {found.holder} of this cluster is connected to {self._broker.address}: stop it"
                    f" first, one serves all clients of the broker. If it does not run, remove the retained"
                    f" message of {topic}"
                )
            await asyncio.sleep(0.3)

    @property
    def _falls_back(self) -> bool:
        return self._broker.protocol == "auto"

    async def _keep(self) -> None:
        while True:
            try:
                connection = self._connection = await self._connect()
                await self._serve(connection)
                self.life.settled(_BROKER)
                self._back_off.reset()
                await self._over.wait()
                reason = self._reason
            except ConnectionLost as error:
                reason = str(error)
            self._end(reason)
            await asyncio.sleep(self._back_off.pause())

    async def _connect(self) -> MqttConnection:
        self._over.clear()
        self._reason = ""
        hubs = [self.host.hub, self._inbound.front]
        try:
            return await MqttConnection.connect(self._broker.server, self._tls, self._session, hubs, self)
        except ConnectionLost as error:
            if self._falls_back and self._log_in.version == V5 and lacks_version(error):
                self._log_in = older(self._log_in)
            raise

    def _session(self, edge: Edge, now: float) -> ClientSession:
        session = ClientSession(
            self._log_in, self._sessions, self._front, self._outputs, edge, now, self.counters
        )
        session.hold(self._held, now)
        return session

    async def _serve(self, connection: MqttConnection) -> None:
        """Goes on where the last connection ended, then subscribes."""
        self.counters.connects += 1
        state = self._state
        self.counters.again += len(state.inflight.all()) if state.inflight is not None else 0
        self._say_lock(connection, self._agent.name.encode())
        if not connection.present:
            for packet_id in list(state.incoming or ()):
                state.give_id_back(packet_id)
        state.resume(connection.session.output)
        await self._outbound.catch_up(all=not connection.present)
        filters = {one.decode(): qos for one, qos in self._out.filters.items()}
        before = self.life.recall(Memory).filters if connection.present else {}
        if filters != before:
            await self._drained()
            await self._subscribe(connection, before)
            self.life.remember(Memory(filters))
        self._serving = True

    async def _drained(self) -> None:
        """Waits until the broker has the retained messages of the cluster, which count for more than those
        that it has kept from before."""
        deadline = asyncio.get_running_loop().time() + _DRAIN_SECONDS
        while self._outbound.lag and not self._over.is_set():
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(0.02)

    async def _subscribe(self, connection: MqttConnection, before: dict[str, int]) -> None:
        """Subscribes to what goes out. Raises ConnectionLost."""
        wanted = self._out.filters
        if gone := [one.encode() for one in before if one.encode() not in wanted]:
            connection.session.output.send(Unsubscribe(_UNSUBSCRIBE_ID, tuple(gone)))
        if not wanted:
            return
        self._granted = asyncio.get_running_loop().create_future()
        connection.session.subscribe(wanted, again=False)
        granted = await self._granted
        if granted is None:
            raise ConnectionLost(self._reason)
        refused = granted.refused
        if refused:
            self.life.note(
                _SUBSCRIPTIONS,
                f"the broker does not give out {missing(refused)}: allow the agent's user to read it",
            )
        else:
            self.life.settled(_SUBSCRIPTIONS)

    def _say_lock(self, connection: MqttConnection, site: bytes) -> None:
        if connection.session.open:
            connection.session.output.send(Publish(lock_topic(self._cluster).encode(), site, 0, True))

    def _end(self, reason: str) -> None:
        self.life.note(_BROKER, reason)
        self._serving = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            now = asyncio.get_running_loop().time()
            self._sessions.closed(connection.session.connection, now, with_will=False)

    # --- what the connection brings

    def granted(self, event: Granted) -> None:
        """Implements `connection.Listener`."""
        self._answer(event)

    def _answer(self, event: Granted | None) -> None:
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(event)

    def closed(self, reason: str) -> None:
        """Implements `connection.Listener`."""
        self._reason = reason
        self._serving = False
        self._over.set()
        self._answer(None)

    # --- bounds

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self._outbound.measure()
            self._look_at_bounds()

    def _look_at_bounds(self) -> None:
        """Has the broker keep its messages while other sites do not take more."""
        full = self.host.turn.congested or self._spool.full
        if full is self._held:
            return
        self._held = full
        self.counters.held += full
        if self._connection is not None:  # not within the turn: what waited is published then
            asyncio.get_running_loop().call_soon(self._connection.hold, full)

    # --- what it says of itself

    def status(self) -> AgentStatus:
        link, counters = self.host.link, self.counters
        counters.published = self._outbound.published
        if large := self._counters.pubsub.dropped_large:
            counters.refused_there["it is larger than the broker takes"] = large
        connected = self._connection is not None and self._connection.session.open
        version = "MQTT 5" if self._log_in.version == V5 else "MQTT 3.1.1"
        return AgentStatus(
            kind=KIND,
            site=self._agent.name,
            host_id=link.session.host_id if link.attached else 0,
            cluster_id=self._agent.cluster_id,
            broker=f"{version} at {self._broker.address}" if connected else "",
            connected=connected,
            serving=self._serving,
            interest="topics",
            lag=self._outbound.lag,
            owed=owed_messages(self.host),
            spool_bytes=spooled_bytes(self.host),
            exchanges={
                str(rule).partition(" ")[0]: str(rule).partition(" ")[2] for rule in self._broker.rules
            },
            sites=sites_of(self.host),
            counters=counters,
            troubles=troubles_of(self.life, self.host, self._held),
        )


__all__ = ["KIND", "Memory", "MosquittoAgent", "StartRefused"]
