"""Consumer groups: membership by either of Kafka's group protocols, and committed offsets.

Classic: `state` is the state machine as a table, `group` one group's rules without clock or I/O, `told`
what is said of it. The new protocol (KIP-848) is `consumer`. `offsets` are what a group committed,
`records` how all of it lies on disk, `journal` writes it, `entry` is what is kept of one group, `loaded`
of all, and `coordinator` is the asyncio edge.
"""

from .coordinator import GroupCoordinator
from .settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupSettings"]
