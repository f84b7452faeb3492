"""Consumer groups: membership, generations and committed offsets (Kafka's classic group protocol).

`state` is the state machine as a table, `group` one group's rules without clock or I/O, `offsets` what
a group committed, `records` how both lie on disk, `journal` writes them, `coordinator` is the asyncio edge.
"""

from .coordinator import GroupCoordinator
from .settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupSettings"]
