"""Consumer groups: membership by either of Kafka's group protocols, and committed offsets.

Classic protocol: `state` holds the state machine as a table, `group` the rounds and members of one group
without clock or I/O, `joining` and `syncing` two of its requests. The new protocol (KIP-848) is in
`consumer`. `offsets` keeps a group's commits, `records` defines the rows on disk, `journal` writes them.
`entry` is the state of one group, `loaded` holds all groups, and `coordinator` answers requests.
"""

from .coordinator import GroupCoordinator
from .loaded import LoadedGroups
from .settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupSettings", "LoadedGroups"]
