"""Homes of consumer groups and transactional ids on joined hosts (docs/coordinator.md, "Homes").

`finder` says where a home is, `router` brings calls there (`groups`, `transactions`; `service` answers
them), `keeper` makes this host a home and lets go of homes, `store` and `mirror` keep what they write.
"""

from __future__ import annotations

from .coordinator import LinkCoordinator
from .homes import Homes
from .ports import HomeSettings, MirrorSettings

__all__ = ["HomeSettings", "Homes", "LinkCoordinator", "MirrorSettings"]
