"""`NextHops`: to which hosts a message would leave this host now, and in which packets, for operators.

They are computed on request, from what streams and groups are at that moment. Nothing is changed: a message
that no stream exists for begins none here. The leader of a partition alone knows to whom it sends, so the
leaders of a topic are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgspec import Struct

from treecast.middleware.broker.pubsub import Targets
from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.carriers.unicast import NAME as UNICAST
from treecast.middleware.fabric.channel import Method, Methods
from treecast.middleware.fabric.core.states import PeerState
from treecast.middleware.fabric.core.streams import UNICAST as UNICAST_NUMBER
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError

from .carrier_choice import Carried
from .distribution import Distribution
from .events.sending import RemoteHost
from .path_troubles import why_short
from .view import ClusterView

LOCAL: Final = "local"
CHANNEL: Final = "channel"
NOTHING: Final = "nothing"
_SECONDS: Final = 5.0  # that a leader has for its answer


class NextHop(Struct, frozen=True, array_like=True):
    """A packet or a call in which `sender` sends a message on.

    `carrier`: LOCAL stands for what stays on the host, CHANNEL for a call over the reliable channel, NOTHING
    for hosts that get nothing now. `stream`: the stream's name; empty if there is none. `state_id`: of the
    group; 0 if it has none. `why`: what else there is to say, above all why it is not a group's packet.
    """

    sender: int
    hosts: tuple[int, ...]
    carrier: str
    address: str = ""
    stream: str = ""
    state_id: int = 0
    why: str = ""


class NextHopsRequest(Struct, frozen=True, array_like=True):
    """Asks for the ways of the partitions of a topic that the called host leads."""

    topic: str


WAYS: Final = Method(64, NextHopsRequest, list[NextHop])


class NextHops:
    """The ways of one host's messages."""

    def __init__(
        self,
        distribution: Distribution,
        fabric: Fabric,
        methods: Methods,
        view: ClusterView,
        trouble: Callable[[int], str],
    ) -> None:
        """`trouble` returns why a host is not connected; empty if it is."""
        self._trouble = trouble
        self._distribution = distribution
        self._fabric = fabric
        self._methods = methods
        self._view = view
        methods.register(WAYS, self._asked)

    # --- messages of MQTT and AMQP

    def of_targets(self, targets: Targets) -> list[NextHop]:
        """Returns the ways to the other hosts among the targets of a topic."""
        remotes = [one.subscriber for one in targets.direct if isinstance(one.subscriber, RemoteHost)]
        own = self._fabric.host
        deaf = [NextHop(own, (one.host,), NOTHING, why="it takes no messages") for one in remotes if one.deaf]
        return [*deaf, *self._to({one.host for one in remotes if not one.deaf})]

    def _to(self, hosts: Collection[int]) -> list[NextHop]:
        events = self._distribution.events
        if events is None or not hosts:
            return []
        stream = events.sending.stream_in_use(hosts)
        if stream is not None:
            return self._of(stream)
        why = "no stream goes to these hosts yet: the first message begins one"
        return [self._by_unicast(host, "", why) for host in sorted(hosts)]

    def to_home(self, host: int, why: str) -> NextHop:
        """Returns the way to the home of a queue, or to the leader of a partition."""
        if host == self._fabric.host:
            return NextHop(host, (host,), LOCAL, why=why)
        entry = self._view.host(host)
        return NextHop(
            self._fabric.host, (host,), CHANNEL, entry.address if entry is not None else "", why=why
        )

    # --- topics

    async def of_topic(self, topic: Topic) -> list[NextHop]:
        """Returns the ways to the leaders of the topic's partitions, and from there on."""
        led: dict[int, list[str]] = {}
        for index in range(topic.partitions):
            entry = self._view.leader(topic.name, index)
            if entry is not None:
                led.setdefault(entry.leader, []).append(f"{topic.name}-{index}")
        first = [self.to_home(leader, _leads(names)) for leader, names in sorted(led.items())]
        further = await asyncio.gather(*[self._from(leader, topic.name) for leader in sorted(led)])
        return [*first, *[way for ways in further for way in ways]]

    async def _from(self, leader: int, topic: str) -> list[NextHop]:
        if leader == self._fabric.host:
            return self.of_led(topic)
        try:
            return (await self._methods.ask(leader, WAYS, NextHopsRequest(topic), _SECONDS))[0]
        except TreecastError as error:
            return [NextHop(leader, (), NOTHING, why=f"the leader does not answer: {error}")]

    def _asked(self, host: int, request: NextHopsRequest, body: memoryview) -> tuple[list[NextHop], Buffer]:
        return self.of_led(request.topic), b""

    def of_led(self, topic: str) -> list[NextHop]:
        """Returns the ways of records from the partitions that this host leads."""
        leading = self._distribution.partitions.leading
        if leading is None:
            raise TreecastError(Fault.NOT_LEADER, "this host leads no partitions")
        return [way for stream in leading.of_topic(topic) for way in self._of(stream)]

    # --- streams

    def _of(self, stream: Carried) -> list[NextHop]:
        origin = stream.origin
        short = why_short(origin, self._fabric, self._name)
        doubted = {peer.host for peer in origin.peers() if peer.doubted}
        found = [
            NextHop(
                origin.key[0],
                copy.hosts,
                carrier,
                copy.address,
                origin.name,
                origin.group if carrier != UNICAST else 0,
                "; ".join(filter(None, (self._why(stream, carrier, copy.hosts, doubted), short))),
            )
            for carrier, copy in origin.copies()
        ]
        return [*found, *self._not_live(stream)]

    def _why(self, stream: Carried, carrier: str, hosts: Collection[int], doubted: set[int]) -> str:
        if carrier == UNICAST:
            return self._distribution.choice.why_unicast(stream, next(iter(hosts)))
        names = sorted([self._name(host) for host in hosts if host in doubted])
        return f"nothing of it arrives at {', '.join(names)} now: unicast, if that lasts" if names else ""

    def _name(self, host: int) -> str:
        entry = self._view.host(host)
        return entry.name if entry is not None else f"host {host}"

    def _not_live(self, stream: Carried) -> Iterable[NextHop]:
        in_vain = stream.origin.in_vain
        for peer in stream.origin.peers():
            if peer.state is PeerState.CATCHING_UP:
                cause = f": nothing of {peer.carrier} arrives there now" if peer.doubted else ""
                why = "nothing that is sent to it again arrives" if peer.host in in_vain else ""
                yield self._by_unicast(peer.host, stream.origin.name, why or f"it {peer.state.value}{cause}")
            elif peer.state is PeerState.SILENT:
                own, name = stream.origin.key[0], stream.origin.name
                why = "; ".join(filter(None, (f"it {peer.state.value}", self._trouble(peer.host))))
                yield NextHop(own, (peer.host,), NOTHING, stream=name, why=why)

    def _by_unicast(self, host: int, stream: str, why: str) -> NextHop:
        own = self._fabric.host
        (copy,) = self._fabric.carriers.copies(UNICAST_NUMBER, (own, 0, 0), 0, [host])
        return NextHop(own, (host,), UNICAST, copy.address, stream, 0, why)


def _leads(names: list[str]) -> str:
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"leads {shown}"
