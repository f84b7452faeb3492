"""The results of the management calls, in the JSON shapes of RabbitMQ 4.3, as far as its tools read them.

Numbers that this broker does not have (Erlang's processes, reductions, garbage collections) are omitted. A
rate is the change between two samples taken at least `_INTERVAL` seconds apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from treecast.middleware.broker.queues import (
    AnyQueue,
    Binding,
    Counts,
    Destination,
    Exchange,
    ExchangeType,
    QueueType,
    VirtualHost,
    merged_policies,
)

from .management_call import Scope
from .management_definitions import Document, shown_table
from .session import Session
from .session_channels import Channel
from .session_consuming import ChannelConsumer
from .session_host import AmqpHost
from .session_state import ConnectionState

_INTERVAL: Final = 5.0  # seconds between samples, RabbitMQ's default
_SAMPLES: Final = 100_000  # limit of stored samples
_FULL: Final = "~"  # the properties key of a binding with neither routing key nor arguments


class NodeFacts(Struct, frozen=True):
    """Facts about the process and the machine. Sizes are in bytes, `uptime` is in seconds."""

    name: str = "treecast@localhost"
    uptime: float = 0.0
    process_id: int = 0
    processors: int = 1
    memory_used: int = 0
    memory_limit: int = 0
    disk_free: int = 0
    disk_limit: int = 0
    descriptors_used: int = 0
    descriptors_total: int = 0
    listeners: tuple[tuple[str, str, int], ...] = ()  # protocol, address, port
    certificates: tuple[tuple[str, float], ...] = ()  # protocol, seconds until its certificate ends


class Rates:
    """The rates of change of numbers, per second."""

    def __init__(self) -> None:
        self._samples: dict[tuple[object, str], tuple[float, int, float]] = {}  # when, number, rate

    def rate(self, of: object, name: str, number: int, now: float) -> float:
        at, before, rate = self._samples.get((of, name), (now, number, 0.0))
        if now - at >= _INTERVAL:
            rate = (number - before) / (now - at)
            self._samples[of, name] = (now, number, rate)
        elif at == now:
            if len(self._samples) >= _SAMPLES:
                self._samples.clear()
            self._samples[of, name] = (now, number, rate)
        return rate

    def numbers(self, of: object, found: Mapping[str, int], now: float) -> Document:
        """Returns the numbers, each followed by its rate."""
        shown: Document = {}
        for name, number in found.items():
            shown[name] = number
            shown[f"{name}_details"] = {"rate": self.rate(of, name, number, now)}
        return shown


class Views:
    """The views of one host. `sessions` returns its connections, `facts` those of its process."""

    def __init__(
        self,
        host: AmqpHost,
        sessions: Callable[[], Iterable[Session]],
        facts: Callable[[], NodeFacts],
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._facts = facts
        self._rates = Rates()

    # --- overview and node

    def overview(self, now: float, scope: Scope) -> Document:
        facts, host = self._facts(), self._host
        version = host.settings.version
        return {
            "management_version": version,
            "rates_mode": "basic",
            "product_name": "Treecast",
            "product_version": version,
            "rabbitmq_version": version,
            "erlang_version": "",
            "erlang_full_version": "",
            "cluster_name": host.queues.cluster_name,
            "node": facts.name,
            "disable_stats": False,
            "enable_queue_totals": False,
            "default_queue_type": "classic",
            "exchange_types": [
                {"name": name, "description": f"AMQP {name} exchange", "enabled": True}
                for name in sorted(one.value for one in ExchangeType)
            ],
            **self._numbers(scope, now),
            **(self._of_the_host(facts, now) if scope.user is None else {}),
        }

    def _of_the_host(self, facts: NodeFacts, now: float) -> Document:
        """The rows of users who may see all virtual hosts."""
        opened = {"connection_created": self._host.connections_opened}
        return {
            "churn_rates": self._rates.numbers("all", opened, now),
            "listeners": self._listeners(facts),
            "contexts": [],
        }

    def _numbers(self, scope: Scope, now: float) -> Document:
        vhosts = [self._host.vhosts[name] for name in scope.vhosts]
        of = "all" if scope.user is None else ("seen by", scope.user)
        counts = Counts()
        for vhost in vhosts:
            counts.add(_counts(vhost))
        depths = _depths([queue for vhost in vhosts for queue in _own(vhost)])
        return {
            "message_stats": self._rates.numbers(of, _stats(counts), now),
            "queue_totals": self._rates.numbers(of, depths, now),
            "object_totals": self._objects(vhosts, self.seen(scope)),
        }

    def _objects(self, vhosts: list[VirtualHost], sessions: list[Session]) -> Document:
        return {
            "connections": len(sessions),
            "channels": sum(len(session.channels.by_number) for session in sessions),
            "consumers": sum(len(queue.consumers) for vhost in vhosts for queue in _own(vhost)),
            "exchanges": sum(len(vhost.exchanges) + 1 for vhost in vhosts),
            "queues": sum(len(vhost.queues) for vhost in vhosts),
        }

    def listeners(self) -> tuple[tuple[str, str, int], ...]:
        """Returns (protocol, address, port) of each listener."""
        return self._facts().listeners

    def certificates(self) -> tuple[tuple[str, float], ...]:
        """(protocol, seconds until the certificate of its listener ends) of all listeners with TLS."""
        return self._facts().certificates

    def _listeners(self, facts: NodeFacts) -> list[Document]:
        return [
            {"node": facts.name, "protocol": protocol, "ip_address": address, "port": port, "socket_opts": {}}
            for protocol, address, port in facts.listeners
        ]

    def node(self, now: float) -> Document:
        facts = self._facts()
        return {
            "name": facts.name,
            "type": "disc",
            "running": True,
            "being_drained": False,
            "os_pid": str(facts.process_id),
            "uptime": int(facts.uptime * 1000),
            "processors": facts.processors,
            "mem_used": facts.memory_used,
            "mem_limit": facts.memory_limit,
            "mem_alarm": "memory" in self._host.alarm,
            "disk_free": facts.disk_free,
            "disk_free_limit": facts.disk_limit,
            "disk_free_alarm": "disk" in self._host.alarm,
            "fd_used": facts.descriptors_used,
            "fd_total": facts.descriptors_total,
            "sockets_used": len(list(self._open())),
            "partitions": [],
            "rates_mode": "basic",
            "enabled_plugins": ["rabbitmq_management"],
            "applications": [],
            "auth_mechanisms": [
                {"name": name, "description": "", "enabled": True} for name in self._host.access.mechanisms
            ],
            "exchange_types": [],
            "log_files": [],
            **self._rates.numbers("node", {"connection_created": self._host.connections_opened}, now),
        }

    # --- virtual hosts, exchanges, queues

    def vhost(self, name: str, now: float) -> Document:
        vhost, said = self._host.vhosts[name], self._host.queues.metadata.get(name, {})
        description, tags = str(said.get("description", "")), said.get("tags", [])
        return {
            "name": name,
            "description": description,
            "tags": tags,
            "default_queue_type": said.get("default_queue_type", "classic"),
            "metadata": {"description": description, "tags": tags, **said},
            "tracing": False,
            "protected_from_deletion": False,
            "cluster_state": {self._facts().name: "running"},
            **self._rates.numbers(("vhost", name), _depths(_own(vhost)), now),
            "message_stats": self._rates.numbers(("vhost", name), _stats(_counts(vhost)), now),
        }

    def exchange(self, vhost: VirtualHost, exchange: Exchange) -> Document:
        policy, _ = exchange.policies
        return {
            "name": _text(exchange.name),
            "vhost": vhost.name,
            "type": exchange.type.value,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": shown_table(exchange.arguments),
            "policy": policy.name if policy is not None else None,
            "user_who_performed_action": "",
        }

    def default_exchange(self, vhost: VirtualHost) -> Document:
        return {
            "name": "",
            "vhost": vhost.name,
            "type": "direct",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
            "policy": None,
            "user_who_performed_action": "",
        }

    def queue(self, vhost: VirtualHost, queue: AnyQueue, now: float) -> Document:
        policy, operator = queue.policies
        node, state = self._home(queue)
        found: Document = {
            "name": _text(queue.name),
            "vhost": vhost.name,
            "type": queue.arguments.type.value,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.owner is not None,
            "arguments": shown_table(queue.asked),
            "node": node,
            "state": state,
            "policy": policy.name if policy is not None else None,
            "operator_policy": operator.name if operator is not None else None,
            "effective_policy_definition": merged_policies(policy, operator),
            "consumers": len(queue.consumers),
            "consumer_utilisation": _used(queue),
            "consumer_capacity": _used(queue),
            "single_active_consumer_tag": _active(queue),
            "exclusive_consumer_tag": None,
            "message_bytes": queue.ready_bytes + queue.unsettled_bytes,
            "message_bytes_ready": queue.ready_bytes,
            "message_bytes_unacknowledged": queue.unsettled_bytes,
            **self._rates.numbers(id(queue), _depths([queue]), now),
            "message_stats": self._rates.numbers(id(queue), _stats(queue.counts), now),
        }
        if queue.arguments.type is QueueType.QUORUM:
            found |= {"leader": node, "members": [node], "online": [node]}
        if isinstance(queue.owner, ConnectionState):
            found["owner_pid_details"] = _ends(queue.owner)
        return found

    def _home(self, queue: AnyQueue) -> tuple[str, str]:
        """Returns the name of the queue's node, and the state of the queue."""
        joined = self._host.queues.joined
        if not queue.home or joined is None:
            return self._facts().name, "running"
        return node_name(joined.reach.name(queue.home)), "running" if joined.reaches(queue.home) else "down"

    def queue_detail(self, vhost: VirtualHost, queue: AnyQueue, now: float, scope: Scope) -> Document:
        """Returns the view of a single queue, which includes its consumers."""
        consumers = [
            self.consumer(session, channel, one)
            for session, channel, one in self._consumers(self.seen(scope))
            if one.queue is queue
        ]
        return {
            **self.queue(vhost, queue, now),
            "consumer_details": consumers,
            "incoming": [],
            "deliveries": [],
        }

    # --- bindings

    def bindings(self, vhost: VirtualHost) -> list[Document]:
        """Returns all bindings, those of the default exchange first."""
        found = [self.default_binding(vhost, queue) for queue in vhost.queues.values()]
        for source, exchange in vhost.exchanges.items():
            found += [self.binding(vhost, source, one) for one in exchange.bindings]
        return found

    def default_binding(self, vhost: VirtualHost, queue: AnyQueue) -> Document:
        return _binding(vhost, "", Destination(queue.name, False), _text(queue.name), {})

    def binding(self, vhost: VirtualHost, source: bytes, binding: Binding) -> Document:
        arguments = vhost.exchanges[source].bindings[binding]
        return _binding(vhost, _text(source), binding.destination, _text(binding.key), arguments)

    # --- connections

    def _open(self) -> Iterable[Session]:
        """Returns the connections that have logged in."""
        return [session for session in self._sessions() if session.state.user]

    def connections(self, vhosts: Iterable[str] | None = None) -> list[Session]:
        """Returns the connections of the given virtual hosts, None for all."""
        known = None if vhosts is None else set(vhosts)
        return [session for session in self._open() if known is None or session.state.vhost.name in known]

    def seen(self, scope: Scope) -> list[Session]:
        """Returns the connections in a scope."""
        return [one for one in self.connections(scope.vhosts) if scope.user in (None, one.state.user)]

    def connection(self, session: Session, now: float) -> Document:
        state = session.state
        peer, server = state.ends
        return {
            **_ends(state),
            "node": self._facts().name,
            "user": state.user,
            "user_who_performed_action": state.user,
            "vhost": state.vhost.name,
            "user_provided_name": state.name or None,
            "host": server[0],
            "port": server[1],
            "peer_host": peer[0],
            "peer_port": peer[1],
            "protocol": "AMQP 0-9-1",
            "type": "network",
            "ssl": False,
            "auth_mechanism": state.mechanism,
            "state": "blocked" if session.opening.blocked else "running",
            "channels": len(session.channels.by_number),
            "channel_max": state.channel_max,
            "frame_max": state.frame_max,
            "timeout": state.heartbeat,
            "connected_at": int(state.opened_at * 1000),
            "client_properties": shown_table(state.properties),
        }

    def channels(self, sessions: Iterable[Session]) -> list[Document]:
        return [
            self.channel(session, channel)
            for session in sessions
            for channel in list(session.channels.by_number.values())
        ]

    def channel(self, session: Session, channel: Channel) -> Document:
        return {
            "name": channel_name(session.state, channel),
            "number": channel.number,
            "node": self._facts().name,
            "user": session.state.user,
            "vhost": session.state.vhost.name,
            "connection_details": _ends(session.state),
            "state": "running",
            "consumer_count": len(channel.consuming.consumers),
            "prefetch_count": channel.consuming.prefetch,
            "global_prefetch_count": 0,
            "messages_unacknowledged": channel.settling.unsettled.count,
            "messages_unconfirmed": 0,
            "messages_uncommitted": channel.transaction.uncommitted[0],
            "acks_uncommitted": channel.transaction.uncommitted[1],
            "confirm": channel.publishing.confirms.on,
            "transactional": channel.transaction.open,
        }

    def consumers(self, scope: Scope) -> list[Document]:
        found = self._consumers(self.seen(scope))
        return [self.consumer(session, channel, one) for session, channel, one in found]

    def _consumers(self, sessions: Iterable[Session]) -> Iterable[tuple[Session, Channel, ChannelConsumer]]:
        for session in sessions:
            for channel in list(session.channels.by_number.values()):
                for one in list(channel.consuming.consumers.values()):
                    yield session, channel, one

    def consumer(self, session: Session, channel: Channel, consumer: ChannelConsumer) -> Document:
        known = consumer.queue.consumers
        active = not consumer.queue.arguments.single_active or known.active is consumer
        return {
            "consumer_tag": _text(consumer.tag),
            "queue": {"name": _text(consumer.queue.name), "vhost": session.state.vhost.name},
            "ack_required": not consumer.no_ack,
            "exclusive": consumer.exclusive,
            "prefetch_count": consumer.prefetch,
            "active": active,
            "activity_status": "up" if active else "waiting",
            "arguments": shown_table(consumer.arguments),
            "channel_details": {
                **_ends(session.state),
                "name": channel_name(session.state, channel),
                "number": channel.number,
                "user": session.state.user,
                "node": self._facts().name,
                "connection_name": connection_name(session.state),
            },
        }


def node_name(host: str) -> str:
    """Returns the name under which management calls show a host."""
    return f"treecast@{host}"


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def connection_name(state: ConnectionState) -> str:
    """Returns `host:port -> host:port`, or `connection NUMBER` if the connection has no addresses."""
    peer, server = state.ends
    return f"{peer[0]}:{peer[1]} -> {server[0]}:{server[1]}" if peer[0] else f"connection {state.number}"


def channel_name(state: ConnectionState, channel: Channel) -> str:
    return f"{connection_name(state)} ({channel.number})"


def _ends(state: ConnectionState) -> Document:
    (host, port), _ = state.ends
    return {"name": connection_name(state), "peer_host": host, "peer_port": port}


def _depths(queues: Iterable[AnyQueue]) -> dict[str, int]:
    ready = unsettled = 0
    for queue in queues:
        ready += queue.ready
        unsettled += queue.unsettled
    return {"messages": ready + unsettled, "messages_ready": ready, "messages_unacknowledged": unsettled}


def _counts(vhost: VirtualHost) -> Counts:
    found = Counts()
    found.add(vhost.queue_definitions.counts)
    for queue in _own(vhost):
        found.add(queue.counts)
    return found


def _own(vhost: VirtualHost) -> list[AnyQueue]:
    """Returns the queues of this host."""
    return [queue for queue in vhost.queues.values() if not queue.home]


def _stats(counts: Counts) -> dict[str, int]:
    delivered = counts.delivered + counts.delivered_no_ack
    return {
        "publish": counts.published,
        "deliver": counts.delivered,
        "deliver_no_ack": counts.delivered_no_ack,
        "deliver_get": delivered + counts.got + counts.got_no_ack,
        "get": counts.got,
        "get_no_ack": counts.got_no_ack,
        "get_empty": counts.got_empty,
        "redeliver": counts.redelivered,
        "ack": counts.settled,
    }


def _used(queue: AnyQueue) -> float:
    """Returns the consumer utilisation: 1.0 if more messages could be delivered at once, else 0.0."""
    return 1.0 if len(queue.consumers) and not queue.ready else 0.0


def _active(queue: AnyQueue) -> str | None:
    active = queue.consumers.active
    return _text(active.tag) if active is not None and queue.arguments.single_active else None


def _binding(
    vhost: VirtualHost, source: str, target: Destination, key: str, arguments: Mapping[str, object]
) -> Document:
    shown = shown_table(arguments)
    return {
        "source": source,
        "vhost": vhost.name,
        "destination": _text(target.name),
        "destination_type": "exchange" if target.is_exchange else "queue",
        "routing_key": key,
        "arguments": shown,
        "properties_key": properties_key(key, shown),
    }


def properties_key(key: str, arguments: Mapping[str, object]) -> str:
    """Returns the name of a binding in paths: its key and, if it has arguments, their hash."""
    if not key and not arguments:
        return _FULL
    shown = quote(key, safe=".")
    if arguments:
        shown += f"~{hashlib.sha256(repr(sorted(arguments.items())).encode()).hexdigest()[:8]}"
    return shown
