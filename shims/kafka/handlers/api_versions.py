"""ApiVersions: what this face serves (KIP-35, KIP-511)."""

from __future__ import annotations

import re

from treecast.middleware.model.buffers import Chunk

from .. import errors
from .. import versions as v
from ..schema import encode_response
from .base import Context, Fields, Handler, Message, refuse_at_top

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def _row(api: v.Api) -> Fields:
    return {"api_key": api.key, "min_version": api.advertised_first, "max_version": api.last}


def api_versions(ctx: Context, request: Message) -> Fields:
    names = (request.client_software_name, request.client_software_version)
    if ctx.version >= 3 and not all(_SOFTWARE.match(name) for name in names):
        return {"error_code": errors.INVALID_REQUEST, "api_keys": []}
    return {"error_code": errors.NONE, "api_keys": [_row(api) for api in v.APIS.values()]}


def refuse_unknown_version(correlation_id: int) -> list[Chunk]:
    """Version 0's body, which every client can read, with the range to choose from (KIP-511)."""
    fields = {"error_code": errors.UNSUPPORTED_VERSION, "api_keys": [_row(v.APIS[v.API_VERSIONS])]}
    return [encode_response(v.API_VERSIONS, 0, correlation_id, fields)]


HANDLERS = {v.API_VERSIONS: Handler(api_versions, refuse_at_top)}
