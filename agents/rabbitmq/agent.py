"""`RabbitAgent`: the agent beside one RabbitMQ server, from `start` to `close`.

    server ──consumer── Inbound ──┐                          exchanges, bindings: `Upkeep`
                                  hub of a BrokerlessHost ── fabric ── other agents
    server ──publishes── Outbound ┘

Two connections lead to the server, one to consume and one to publish: a server that blocks publishers stops
reading theirs, and acknowledgements must go on. Each is made again when it is lost. The agent holds a lock at
the server, an exclusive queue: a second agent for the same server and cluster refuses to start.
"""

from __future__ import annotations

import asyncio
import random
import ssl

from msgspec import Struct
from pamqp import commands

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
from treecast.agents.common.status import AgentStatus, Trouble
from treecast.middleware.api.lasting import BackOff
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.wishes import Pattern
from treecast.middleware.relay.brokerless import BrokerlessHost

from . import hops
from .connection import AmqpConnection, CallRefused, ConnectionLost
from .inbound import Inbound
from .management import Management
from .outbound import Outbound
from .session import Confirmed, Delivered, LogIn
from .settings import RabbitAgentSettings
from .topics import KIND, all_topics
from .upkeep import Upkeep

_CONTROL, _CONSUME, _EVENTS = 1, 2, 3  # channels of the first connection
_PUBLISH = 1  # and of the second one
_EVENT_EXCHANGE = "amq.rabbitmq.event"
_EVENT_KEYS = ("binding.#", "exchange.#", "queue.deleted", "policy.#")
_LOCK_SECONDS = 3.0  # how long the lock of an agent that has just ended is waited for
_NO_ROOM = frozenset({403, 405})


class Memory(Struct):
    """The interest of the site, kept in the data directory: it holds while the agent is away."""

    patterns: list[Pattern] = []


class RabbitAgent:
    """One agent. All is called on one event loop."""

    def __init__(self, settings: RabbitAgentSettings) -> None:
        """Raises SettingsError."""
        settings.check()
        self._settings = settings
        self._tls: ssl.SSLContext | None = settings.rabbitmq.tls_context()
        agent, rabbit = settings.agent, settings.rabbitmq
        self._cluster = agent.cluster_id[:8]
        self._hop = hops.entry(self._cluster, agent.name)
        self.queue = f"treecast.agent.{self._cluster}"
        self.life = SiteLife(agent, self)
        self.counters = self.life.counters
        self.host = BrokerlessHost(host_settings(agent), Counters())
        self._management = Management(rabbit.management, *rabbit.management_log_in, rabbit.vhost, self._tls)
        self._troubles = self.life.troubles
        self._inbound: Inbound
        self._outbound: Outbound
        self._upkeep: Upkeep
        self._consuming: _Consuming | None = None
        self._publishing: _Publishing | None = None
        self._product = ("", "")
        self._tasks: list[asyncio.Task[None]] = []
        self._back_off = BackOff(random.Random())  # nosec B311  # pauses, no secrets

    # --- life

    async def start(self) -> None:
        """Joins the cluster and connects to the server. Raises StartRefused, TreecastError or OSError.

        A server that is away is waited for beside: what other sites send it is stored meanwhile. The caller
        must call `close` even after a failure.
        """
        await self.host.open(self._prepare)
        self.host.on_wanted_by_others(self._upkeep.others_changed)
        self.host.definitions.listener = lambda changes: self._upkeep.defined(changes.keys())
        self._inbound.open()
        await self.life.start(self.host)
        await self._first_connection()
        self._tasks = [
            asyncio.create_task(self._keep_consuming(), name="consumer"),
            asyncio.create_task(self._keep_publishing(), name="publisher"),
            asyncio.create_task(self._upkeep.run(), name="upkeep"),
        ]

    def _prepare(self) -> None:
        """Takes up what an earlier run left, before other hosts are told anything."""
        rabbit, hub = self._settings.rabbitmq, self.host.hub
        self._outbound = Outbound(
            hub,
            self.host.turn,
            rabbit.vhost,
            self._hop,
            rabbit.window,
            rabbit.user_id == "keep",
            self.counters,
            Room(self._settings.agent.spool_bytes, self.host.hold),
        )
        self._inbound = Inbound(
            hub,
            self.host.turn,
            self._outbound,
            rabbit.vhost,
            self._hop,
            Spool(self._settings.agent.spool_bytes, lambda: self.host.owed_bytes),
            self.counters,
        )
        self._outbound.restore(all_topics(rabbit.vhost))
        self._upkeep = Upkeep(
            self.host,
            self._management,
            rabbit,
            self.queue,
            self._inbound,
            self._outbound,
            self._troubles,
            self._remember,
        )
        self._upkeep.remembered(self.life.recall(Memory).patterns)

    def _remember(self, patterns: list[Pattern]) -> None:
        self.life.remember(Memory(patterns))

    async def close(self) -> None:
        """Stops in order. What is not confirmed stays in the journal. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for life in (self._consuming, self._publishing):
            if life is not None and life.connection is not None:
                await life.connection.close()
        if hasattr(self, "_inbound"):
            self._inbound.close()
        await self.life.close()
        await self._management.close()
        await self.host.close()

    # --- the server

    def _log_in(self, what: str) -> LogIn:
        rabbit, agent = self._settings.rabbitmq, self._settings.agent
        return LogIn(
            rabbit.user,
            rabbit.secret,
            rabbit.vhost,
            f"treecast agent {agent.name}, {what}",
            rabbit.mechanism,
            rabbit.heartbeat,
            hops.start(self._cluster),
        )

    async def _connect(self, what: str, life: _Life) -> AmqpConnection:
        server = self._settings.rabbitmq.server
        return await AmqpConnection.connect(server, self._tls, self._log_in(what), life)

    async def _first_connection(self) -> None:
        """Takes the lock at the server if it can be reached. Raises StartRefused if another agent has it."""
        deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
        while True:
            try:
                self._consuming = await self._begin_consuming()
                return
            except CallRefused as error:
                if error.code not in _NO_ROOM:
                    self.life.note("server", str(error))
                    return
                if asyncio.get_running_loop().time() > deadline:
                    raise StartRefused(
                        f"another agent of this cluster is connected to {self._settings.rabbitmq.address}"
                        f" ({error}): stop it first, one serves all clients of the server"
                    ) from error
                await asyncio.sleep(0.3)
            except ConnectionLost as error:
                self.life.note("server", str(error))
                return

    async def _begin_consuming(self) -> _Consuming:
        """Connects and takes the lock. Raises ConnectionLost or CallRefused."""
        life = _Consuming(self)
        connection = life.connection = await self._connect("consumer", life)
        try:
            await connection.open_channel(_CONTROL)
            lock = commands.Queue.Declare(queue=f"{self.queue}.lock", exclusive=True, auto_delete=True)
            await connection.call(_CONTROL, lock)
            await connection.call(_CONTROL, commands.Queue.Declare(queue=self.queue, durable=True))
        except BaseException:
            connection.abort()
            raise
        self._product = connection.product
        self.counters.connects += 1
        return life

    async def _keep_consuming(self) -> None:
        while True:
            try:
                life = self._consuming or await self._begin_consuming()
                self._consuming = life
                await self._consume(life)
                self._troubles.pop("server", None)
                self._back_off.reset()
                await life.over.wait()
                reason = life.reason
            except (ConnectionLost, CallRefused) as error:
                reason = str(error)
            self._end_consuming(reason)
            await asyncio.sleep(self._back_off.pause())

    async def _consume(self, life: _Consuming) -> None:
        """Puts exchanges and bindings right, then begins to consume."""
        connection = life.connection
        assert connection is not None
        await self._listen(connection)
        self._upkeep.attach(connection, _CONTROL)
        await self._upkeep.first()
        await connection.open_channel(_CONSUME)
        await connection.call(_CONSUME, commands.Basic.Qos(0, self._settings.rabbitmq.prefetch, False))
        self._inbound.attach(connection, _CONSUME)
        consume = commands.Basic.Consume(queue=self.queue, consumer_tag="treecast", exclusive=True)
        await connection.call(_CONSUME, consume)
        life.serving = True

    async def _listen(self, connection: AmqpConnection) -> None:
        """Subscribes to the server's events, if it has the event exchange."""
        await connection.open_channel(_EVENTS)
        self._upkeep.events = False
        try:
            passive = commands.Exchange.Declare(exchange=_EVENT_EXCHANGE, passive=True)
            await connection.call(_EVENTS, passive)
        except CallRefused:
            return
        declared = await connection.call(_EVENTS, commands.Queue.Declare(exclusive=True, auto_delete=True))
        assert isinstance(declared, commands.Queue.DeclareOk)
        queue = declared.queue or ""
        for key in _EVENT_KEYS:
            bind = commands.Queue.Bind(queue=queue, exchange=_EVENT_EXCHANGE, routing_key=key)
            await connection.call(_EVENTS, bind)
        await connection.call(_EVENTS, commands.Basic.Consume(queue=queue, no_ack=True))
        self._upkeep.events = True

    def _end_consuming(self, reason: str) -> None:
        self.life.note("server", reason)
        self._inbound.detach()
        self._upkeep.detach()
        life, self._consuming = self._consuming, None
        if life is not None and life.connection is not None:
            life.connection.abort()

    async def _keep_publishing(self) -> None:
        pauses = BackOff(random.Random())  # nosec B311  # as above
        refused = False
        while True:
            await self._upkeep.ready.wait()  # the exchanges are there
            life = _Publishing(self)
            try:
                if refused:
                    self._upkeep.look_again()
                connection = life.connection = await self._connect("publisher", life)
                await connection.open_channel(_PUBLISH)
                await connection.call(_PUBLISH, commands.Confirm.Select())
                self._publishing = life
                self._outbound.attach(connection, _PUBLISH)
                self._troubles.pop("publisher", None)
                await life.over.wait()
                reason = life.reason
            except (ConnectionLost, CallRefused) as error:
                reason = str(error)
            refused = life.refused
            self.life.note("publisher", reason)
            self._outbound.detach(refused)
            self._publishing = None
            if life.connection is not None:
                life.connection.abort()
            await asyncio.sleep(pauses.pause() if refused else self._back_off.pause())

    # --- what connections bring

    def delivered(self, run: Delivered) -> None:
        if run.channel == _EVENTS:
            self._upkeep.look_again()
        else:
            self._inbound.delivered(run)

    def confirmed(self, confirm: Confirmed) -> bool:
        return self._outbound.confirmed(confirm)

    def blocked(self, reason: str) -> None:
        if reason:
            self._troubles["blocked"] = Trouble("blocked", f"the server reads no publishes: {reason}")
        else:
            self._troubles.pop("blocked", None)
        self._outbound.block(reason)

    def room(self) -> None:
        self._outbound.pump()

    # --- what it says of itself

    @property
    def admin_address(self) -> str:
        return self.life.admin_address

    def status(self) -> AgentStatus:
        link = self.host.link
        consuming, publishing = self._consuming, self._publishing
        return AgentStatus(
            kind=KIND,
            site=self._settings.agent.name,
            host_id=link.session.host_id if link.attached else 0,
            cluster_id=self._settings.agent.cluster_id,
            broker=" ".join(self._product).strip() if consuming is not None else "",
            connected=consuming is not None and publishing is not None,
            serving=consuming is not None and consuming.serving and publishing is not None,
            interest="events" if self._upkeep.events else "polling",
            lag=self._outbound.lag,
            owed=owed_messages(self.host),
            spool_bytes=spooled_bytes(self.host),
            exchanges=dict(self._inbound.kinds),
            sites=sites_of(self.host),
            counters=self.counters,
            troubles=troubles_of(self.life, self.host, self._inbound.held),
        )


class _Life:
    """One connection from the agent's side. Implements `connection.Listener`."""

    def __init__(self, agent: RabbitAgent) -> None:
        self.agent = agent
        self.connection: AmqpConnection | None = None
        self.over = asyncio.Event()
        self.reason = ""
        self.serving = False
        self.refused = False  # because of what was published

    def delivered(self, run: Delivered) -> None: ...

    def confirmed(self, confirm: Confirmed) -> None: ...

    def blocked(self, reason: str) -> None: ...

    def room(self) -> None: ...

    def closed(self, reason: str) -> None:
        self.reason = reason
        self.serving = False
        self.over.set()


class _Consuming(_Life):
    def delivered(self, run: Delivered) -> None:
        self.agent.delivered(run)


class _Publishing(_Life):
    def confirmed(self, confirm: Confirmed) -> None:
        if not self.agent.confirmed(confirm) and not self.over.is_set():
            self.refused = True
            self.closed("the server did not take a message (basic.nack)")

    def blocked(self, reason: str) -> None:
        self.agent.blocked(reason)

    def room(self) -> None:
        self.agent.room()

    def closed(self, reason: str) -> None:
        connection = self.connection
        self.refused = self.refused or (connection is not None and connection.refused)
        super().closed(reason)
