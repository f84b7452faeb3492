"""One handler per API off the hot path; `produce` and `fetch` are called directly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import api_versions, configs, groups, log_dirs, metadata, offsets, topics, transactions
from .base import Context, Handler

HANDLERS: Mapping[int, Handler] = MappingProxyType(
    api_versions.HANDLERS
    | configs.HANDLERS
    | groups.HANDLERS
    | log_dirs.HANDLERS
    | metadata.HANDLERS
    | offsets.HANDLERS
    | topics.HANDLERS
    | transactions.HANDLERS
)

__all__ = ["HANDLERS", "Context", "Handler"]
