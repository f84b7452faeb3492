"""The relay of one host, put together from its parts: the cluster that a joined broker faces."""

from __future__ import annotations

from treecast.middleware.broker.parts import LocalParts

from .adoption import Adoption
from .carrier_choice import CarrierSettings
from .cluster import RelayCluster
from .definitions import RelayDefinitions
from .events.events import Events
from .events.share_homes import LinkHomes
from .homes import Homes, LinkCoordinator
from .interest import InterestSettings
from .link import Link
from .neighbours import ChannelLife, Endpoint, FabricLife, Neighbours
from .partitions.doubts import Doubts
from .partitions.record import LinkRecord
from .partitions.relay_partitions import RelayPartitions
from .partitions.settings import PartitionSettings
from .sharing import Sharing
from .view_store import ViewStore

FIRST_SECONDS = 10.0  # how long a host that knows nothing yet waits for the coordinator's first word


class Opening:
    """First of the lives: what is known is read, what was the host's own is handed over, topics open."""

    def __init__(self, parts: LocalParts, link: Link, definitions: RelayDefinitions, doubts: Doubts) -> None:
        self._doubts = doubts
        self._parts = parts
        self._link = link
        self._definitions = definitions
        self._adoption = Adoption(parts, link)

    async def start(self) -> None:
        self._link.load(ViewStore(self._parts.tables))
        await self._adoption.hand_over()
        await self._definitions.start()
        self._link.start()
        if self._link.attached:
            await self._link.first_seen(FIRST_SECONDS)
            await self._definitions.settled()
            if await self._doubts.check():
                await self._definitions.settled()

    async def close(self) -> None:
        await self._definitions.close()
        await self._link.close(detach=True)


def join(parts: LocalParts, link: Link, endpoint: Endpoint) -> RelayCluster:
    """The cluster over the local parts of a joined host.

    Lives start in order: what is known and led here, the fabric, who answers for partitions and homes (they
    register their calls and ask nobody yet), the channels.
    """
    neighbours = Neighbours(
        endpoint, parts.host.host_id, parts.run, parts.cluster_id, link.view, parts.counters
    )
    definitions = RelayDefinitions(
        parts.settings, parts.host.host_id, link, parts.partitions, parts.groups.forget_topic
    )
    record = LinkRecord(link)
    doubts = Doubts(
        parts.host.host_id, parts.partitions, link.view, record, clean=parts.partitions.closed_in_order
    )
    homes = Homes(parts, link.view, LinkCoordinator(link), neighbours.methods, neighbours.channels.is_up)
    partitions = RelayPartitions(
        parts,
        definitions,
        link.view,
        neighbours.channels,
        neighbours.methods,
        neighbours.fabric,
        PartitionSettings(),
        parts.counters.relay,
        record,
        link.directory,
    )
    sharing = Sharing(
        link,
        neighbours.methods,
        neighbours.fabric,
        partitions,
        InterestSettings(),
        CarrierSettings(),
        parts.counters.relay,
    )
    events = Events(
        parts.pubsub.hub,
        parts.pubsub.turn,
        parts.run,
        sharing.interest,
        neighbours.methods,
        neighbours.fabric,
        parts.counters.events,
        parts.clock,
        LinkHomes(link),
        tables=parts.tables,
    )

    def up(host: int, incarnation: int) -> None:
        neighbours.accepted(host)
        sharing.host_up(host, incarnation)

    neighbours.channels.on_up = up
    neighbours.channels.on_down = sharing.host_down
    return RelayCluster(
        parts.cluster_id,
        parts.host,
        definitions,
        partitions,
        homes,
        homes,
        [
            Opening(parts, link, definitions, doubts),
            FabricLife(neighbours),
            partitions,
            sharing,
            homes,
            ChannelLife(neighbours),
        ],
        neighbours,
        sharing,
        events,
        parts.tables,
    )
