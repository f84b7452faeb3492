"""The answer of `treecast explain`: which hosts want a message published here, and its ways to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.broker import Cluster
from treecast.middleware.broker.pubsub import PubSub, Targets
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topics import TopicName
from treecast.shims.face import Exchanges

if TYPE_CHECKING:
    from treecast.middleware.broker.queues import AnyQueue
    from treecast.middleware.relay.next_hops import NextHop, NextHops

_LOCAL = "local"
_MOST = 6  # names that a row shows


class Explanation:
    """Explains the ways of messages of one host."""

    def __init__(
        self,
        cluster: Cluster,
        hub: PubSub,
        exchanges: Exchanges | None,
        ways: NextHops | None,
        name: Callable[[int], str],
    ) -> None:
        """`exchanges`: None without the AMQP face. `ways`: None for a host alone. `name` returns a host's
        name.
        """
        self._cluster = cluster
        self._hub = hub
        self._exchanges = exchanges
        self._ways = ways
        self._name = name

    async def answer(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        """Raises UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_REQUEST or NOT_SUPPORTED."""
        kind = request.WhichOneof("destination")
        if kind == "topic":
            ways = await self._of_topic(request.topic)
        elif kind == "mqtt":
            if "+" in request.mqtt or "#" in request.mqtt:
                raise TreecastError(Fault.INVALID_TOPIC, f"{request.mqtt!r} is a filter: name a topic")
            ways = await self._of_message(TopicName.from_mqtt(request.mqtt).to_mqtt().encode(), queues=True)
        elif kind == "exchange":
            ways = await self._of_exchange(request)
        else:
            raise TreecastError(Fault.INVALID_REQUEST, "name an exchange, a topic or an MQTT topic")
        own = self._cluster.host.host_id
        return pb.ExplainResponse(
            host=self._name(own),
            hosts=sorted({host for way in ways for host in way.hosts}),
            ways=ways,
        )

    # --- by what it is published to

    async def _of_topic(self, name: str) -> list[pb.MessageWay]:
        topic = self._cluster.definitions.topics().get(name)
        if topic is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {name!r}")
        if self._ways is None:
            return [self._local(f"leads all partitions of {name}")]
        return [self._message(way) for way in await self._ways.of_topic(topic)]

    async def _of_message(self, topic: bytes, *, queues: bool) -> list[pb.MessageWay]:
        """`queues`: whether queues bound to `amq.topic` count as subscribers."""
        recorder = self._hub.routes.recorder
        if recorder is not None and recorder.records(topic):
            return await self._of_topic(TopicName.from_mqtt(topic.decode()).to_kafka())
        targets = self._hub.routes.look_up(topic)
        names = _subscribers(targets, queues=queues)
        found = [self._local(f"subscribers: {_some(names)}")] if names else []
        if self._ways is not None:
            found += [self._message(way) for way in self._ways.of_targets(targets)]
        return found

    async def _of_exchange(self, request: pb.ExplainRequest) -> list[pb.MessageWay]:
        if self._exchanges is None:
            raise TreecastError(
                Fault.NOT_SUPPORTED, "the AMQP face of this host is off: start it with --amqp"
            )
        queues, topics = self._exchanges.routed(
            request.vhost or "/", request.exchange, request.key, request.headers
        )
        found = self._of_queues(queues)
        for topic in topics:
            found += await self._of_message(topic, queues=False)
        return found

    def _of_queues(self, queues: Sequence[AnyQueue]) -> list[pb.MessageWay]:
        homes: dict[int, list[str]] = {}
        for queue in queues:
            homes.setdefault(queue.home, []).append(_text(queue.name))
        found = []
        for home, names in sorted(homes.items()):
            why = f"queues: {_some(names)}"
            here = home == 0 or self._ways is None
            found.append(self._local(why) if here else self._message(self._home(home, why)))
        return found

    def _home(self, host: int, why: str) -> NextHop:
        assert self._ways is not None
        return self._ways.to_home(host, why)

    # --- as messages

    def _local(self, why: str) -> pb.MessageWay:
        own = self._name(self._cluster.host.host_id)
        return pb.MessageWay(sender=own, hosts=[own], carrier=_LOCAL, why=why)

    def _message(self, way: NextHop) -> pb.MessageWay:
        return pb.MessageWay(
            sender=self._name(way.sender),
            hosts=[self._name(host) for host in way.hosts],
            carrier=way.carrier,
            address=way.address,
            stream=way.stream,
            state_id=way.state_id,
            why=way.why,
        )


def _subscribers(targets: Targets, *, queues: bool) -> list[str]:
    """Returns the names of this host's own subscribers and shared subscriptions."""
    names = [one.subscriber.name or "unnamed" for one in targets.direct if not one.subscriber.foreign]
    shared = [f"one of $share/{_text(group.name)}" for group in targets.groups]
    return [*[name for name in names if queues or name != "amq.topic"], *shared]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
