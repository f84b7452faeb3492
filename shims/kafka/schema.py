"""Requests and responses of all APIs off the hot path, from kafka-python's copy of Kafka's descriptors.

kafka-python's own codec is made for a client and is too lenient for a server: it decodes a truncated message
to short fields, accepts a varint as long as the message, and accepts null in fields that are not nullable.
The face therefore uses only the package's descriptor files, without importing the package (which takes
150 ms and 20 MB), and compiles them with `messages`. Tests compare the result with kafka-python's codec. A
message is compiled on first use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .descriptors import DESCRIPTORS
from .messages import Json, Message, Reader, Row, in_versions
from .versions import API_VERSIONS, APIS

_COMMENT = re.compile(r"(?m)^\s*//.*$")
_INT32_SIZE = 4
_WIDTHS = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}


@cache
def _directory() -> Path:
    """Returns the directory of the descriptors. Finding a top-level package does not import it."""
    spec = find_spec("kafka")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("kafka-python is not installed: its message descriptors are missing")
    return Path(spec.submodule_search_locations[0]) / "protocol" / "schemas" / "resources"


@cache
def descriptor(name: str) -> Json:
    """Returns the descriptor of a message, such as `HeartbeatRequest`, with its common structs resolved."""
    if name in DESCRIPTORS:
        return DESCRIPTORS[name]
    text = (_directory() / f"{name}.json").read_text(encoding="utf-8")
    parsed: Json = json.loads(_COMMENT.sub("", text))
    common = {struct["name"]: struct["fields"] for struct in parsed.get("commonStructs", ())}
    _resolve(parsed["fields"], common)
    return parsed


def _resolve(fields: list[Json], common: Mapping[str, list[Json]]) -> None:
    for field in fields:
        named = field["type"].removeprefix("[]")
        if "fields" not in field and named in common:
            field["fields"] = common[named]
        _resolve(field.get("fields", []), common)


def _own_text(name: str, tag: int) -> Json:
    return {
        "name": name,
        "type": "string",
        "versions": "3+",
        "tag": tag,
        "taggedVersions": "3+",
        "default": "",
    }


# Treecast's own tagged fields, which other brokers skip. An EndTxn request names a batch that was staged in
# parts (broker/transactions/parts.py): its id, the parts that count, and its content. The response gives the
# reason for a refusal.
_OWN: Mapping[str, list[Json]] = {
    "EndTxnRequest": [
        {
            "name": "TreecastBatch",
            "type": "int64",
            "versions": "3+",
            "tag": 29795,
            "taggedVersions": "3+",
            "default": "-1",
        },
        {
            "name": "TreecastParts",
            "type": "[]TreecastPart",
            "versions": "3+",
            "tag": 29796,
            "taggedVersions": "3+",
            "fields": [
                {"name": "TransactionalId", "type": "string", "versions": "3+"},
                {"name": "ProducerId", "type": "int64", "versions": "3+"},
                {"name": "ProducerEpoch", "type": "int16", "versions": "3+"},
            ],
        },
        _own_text("TreecastContent", 29797),
    ],
    "EndTxnResponse": [_own_text("TreecastWhy", 29798)],
}


@cache
def _message(name: str, version: int, flexible: bool) -> Message:
    return Message([*descriptor(name)["fields"], *_OWN.get(name, ())], version, flexible)


def request_message(key: int, version: int) -> Message:
    api = APIS[key]
    return _message(f"{api.name}Request", version, version >= api.flexible)


def response_message(key: int, version: int) -> Message:
    api = APIS[key]
    return _message(f"{api.name}Response", version, version >= api.flexible)


@cache
def throttle_at(key: int, version: int) -> int:
    """Returns where a framed response has its throttle time; 0 if it has none, or has it behind a list, as
    Produce and ApiVersions do.
    """
    api = APIS.get(key)
    if api is None or not api.serves(version):
        return 0
    at = 2 * _INT32_SIZE + (1 if version >= api.flexible else 0)
    for field in descriptor(f"{api.name}Response")["fields"]:
        if not in_versions(field["versions"], version) or "tag" in field:
            continue
        if field["name"] == "ThrottleTimeMs":
            return at
        if field["type"] not in _WIDTHS:
            return 0
        at += _WIDTHS[field["type"]]
    return 0


def decode_request(key: int, version: int, body: memoryview) -> Row:
    """Returns a request's fields, with defaults for those that this version lacks. Raises MalformedMessage.

    Trailing bytes are ignored, as in Kafka. librdkafka leaves three of them in a request for the metadata of
    all topics, where it shrinks a fixed-width count to a compact one.
    """
    return request_message(key, version).read(Reader(body))


def encode_response(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytearray:
    """Returns a framed response. Omitted fields get their defaults; fields not in this version are dropped.

    int32 size | int32 correlation id | header version 1: empty tagged fields | body

    Flexible versions have header version 1, except ApiVersions: its client cannot know the version yet.
    """
    out = bytearray(2 * _INT32_SIZE)
    if version >= APIS[key].flexible and key != API_VERSIONS:
        out.append(0)
    response_message(key, version).write(out, values)
    out[:_INT32_SIZE] = (len(out) - _INT32_SIZE).to_bytes(_INT32_SIZE, "big")
    out[_INT32_SIZE : 2 * _INT32_SIZE] = correlation_id.to_bytes(_INT32_SIZE, "big", signed=True)
    return out
