"""Homes of consumer groups and transactional ids on joined hosts (docs/coordinator.md, "Homes").

`finder` looks up homes. `router` routes calls to them, as defined in `calls`. `keeper` acquires and releases
homes of this host. `store` and `mirror` store their writes.
"""

from __future__ import annotations

from .coordinator import LinkCoordinator
from .homes import Homes
from .ports import HomeSettings, MirrorSettings

__all__ = ["HomeSettings", "Homes", "LinkCoordinator", "MirrorSettings"]
