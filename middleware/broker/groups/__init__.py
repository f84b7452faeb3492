"""Consumer groups: membership by either of Kafka's group protocols, and committed offsets.

Classic protocol: `state` holds the state machine as a table, `group` the rules of one group without clock
or I/O, `told` the answers about it. The new protocol (KIP-848) is in `consumer`. `offsets` keeps a group's
commits, `records` defines the rows on disk, `journal` writes them. `entry` is the state of one group,
`loaded` of all groups, and `coordinator` is the asyncio edge.
"""

from .coordinator import GroupCoordinator
from .settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupSettings"]
