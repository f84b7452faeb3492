"""ApiVersions: the APIs and versions that this face serves (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from treecast.middleware.model.buffers import Chunk

from .. import errors
from .. import versions as v
from ..schema import encode_response
from .base import Context, Fields, Handler, Message, refuse_at_top

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


# Clients look here for whether the new group protocol is served (KIP-848)
_FEATURES: Mapping[str, int] = MappingProxyType({"group.version": 1})


def _row(api: v.Api) -> Fields:
    return {"api_key": api.key, "min_version": api.advertised_first, "max_version": api.last}


def api_versions(ctx: Context, request: Message) -> Fields:
    names = (request.client_software_name, request.client_software_version)
    if ctx.version >= 3 and not all(_SOFTWARE.match(name) for name in names):
        return {"error_code": errors.INVALID_REQUEST, "api_keys": []}
    return {
        "error_code": errors.NONE,
        "api_keys": [_row(api) for api in v.APIS.values()],
        "supported_features": [_feature(ctx.version, name, level) for name, level in _FEATURES.items()],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in _FEATURES.items()
        ],
    }


def _feature(version: int, name: str, level: int) -> Fields:
    """Returns one feature's row. Version 3 must not carry a minimum level of 0 (KAFKA-17011)."""
    return {"name": name, "min_version": 0 if version >= 4 else 1, "max_version": level}


def refuse_unknown_version(correlation_id: int) -> list[Chunk]:
    """Returns a response of version 0, which every client can read, with the versions served (KIP-511)."""
    fields = {"error_code": errors.UNSUPPORTED_VERSION, "api_keys": [_row(v.APIS[v.API_VERSIONS])]}
    return [encode_response(v.API_VERSIONS, 0, correlation_id, fields)]


HANDLERS = {v.API_VERSIONS: Handler(api_versions, refuse_at_top)}
