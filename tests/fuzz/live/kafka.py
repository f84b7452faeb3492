"""Requests of every API and version, with random values of the right types."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Mapping
from typing import Any

from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.kafka.messages import in_versions, snake
from treecast.shims.kafka.schema import descriptor, request_message
from treecast.shims.kafka.versions import APIS

from .changes import blob, name, number, sometimes_changed

_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}


def conversation(rng: random.Random) -> list[bytes]:
    """Requests for one connection."""
    return [_framed(rng) for _ in range(rng.randrange(1, 12))]


def _framed(rng: random.Random) -> bytes:
    api = rng.choice(list(APIS.values()))
    version = rng.randint(api.first, api.last)
    flexible = version >= api.flexible
    out = bytearray(struct.pack(">hhih", api.key, version, rng.randrange(1000), 4) + b"fuzz")
    if flexible:
        out.append(0)
    fields = descriptor(f"{api.name}Request")["fields"]
    request_message(api.key, version).write(out, _values(fields, version, rng))
    data = sometimes_changed(bytes(out), rng)
    size = len(data) if rng.random() < 0.97 else number(rng, 32)
    return struct.pack(">i", size) + data


def _values(fields: list[Mapping[str, Any]], version: int, rng: random.Random) -> dict[str, Any]:
    present = [one for one in fields if in_versions(one["versions"], version)]
    return {snake(one["name"]): _value(one, version, rng) for one in present}


def _value(field: Mapping[str, Any], version: int, rng: random.Random) -> Any:
    kind: str = field["type"]
    if in_versions(field.get("nullableVersions"), version) and rng.random() < 0.2:
        return None
    if kind.startswith("[]"):
        element = {**field, "type": kind[2:], "nullableVersions": "none"}
        return [_value(element, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    return _single(field, kind, version, rng)


def _single(field: Mapping[str, Any], kind: str, version: int, rng: random.Random) -> Any:
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.0, 0.5, float("inf"), float("nan")))
        case "string":
            return name(rng)
        case "uuid":
            return uuid.UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
        case "bytes":
            return blob(rng)
        case "records":
            return sometimes_changed(_batch(rng), rng, 0.3)
        case "uint16":
            return number(rng, 16, signed=False)
        case _ if kind in _BITS:
            return number(rng, _BITS[kind])
        case _:
            return _values(field["fields"], version, rng)


def _batch(rng: random.Random) -> bytes:
    records = [Record(blob(rng), blob(rng), (), 1_700_000_000_000) for _ in range(rng.randrange(1, 4))]
    return bytes(build_batch(records))
