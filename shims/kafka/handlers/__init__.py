"""One handler per API off the hot path. `produce` and `fetch` are called directly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import (
    acls,
    api_versions,
    configs,
    consumer_groups,
    groups,
    hung,
    log_dirs,
    metadata,
    not_kept,
    offsets,
    placement,
    quotas,
    sasl,
    scram_users,
    topics,
    transactions,
)
from .base import Context, Handler

HANDLERS: Mapping[int, Handler] = MappingProxyType(
    acls.HANDLERS
    | api_versions.HANDLERS
    | configs.HANDLERS
    | consumer_groups.HANDLERS
    | groups.HANDLERS
    | hung.HANDLERS
    | log_dirs.HANDLERS
    | metadata.HANDLERS
    | not_kept.HANDLERS
    | offsets.HANDLERS
    | placement.HANDLERS
    | quotas.HANDLERS
    | sasl.HANDLERS
    | scram_users.HANDLERS
    | topics.HANDLERS
    | transactions.HANDLERS
)

__all__ = ["HANDLERS", "Context", "Handler"]
