"""Messages compiled from the descriptors, compared with kafka-python's codec, and size bombs."""

from __future__ import annotations

import struct
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kafka.own_messages import kafka_python

from treecast.shims.kafka import schema
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.messages import (
    MAX_ELEMENTS,
    MalformedMessage,
    Reader,
    Row,
    in_versions,
    snake,
    write_varint,
)

PAIRS = [(key, version) for key, api in v.APIS.items() for version in range(api.first, api.last + 1)]


def values_of(fields: list[dict[str, Any]], version: int, draw: Any) -> dict[str, Any]:
    """Draws values for the fields of a version."""
    return {
        snake(field["name"]): value_of(field, version, draw)
        for field in fields
        if in_versions(field["versions"], version)
    }


INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def value_of(field: dict[str, Any], version: int, draw: Any) -> Any:
    kind = field["type"]
    if in_versions(field.get("nullableVersions"), version) and draw(st.booleans()):
        return None
    if kind.startswith("[]"):
        inner = field | {"type": kind[2:], "nullableVersions": "none"}
        return [value_of(inner, version, draw) for _ in range(draw(st.integers(0, 2)))]
    if kind in INTS:
        bits = INTS[kind]
        return draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    if kind == "bool":
        return draw(st.booleans())
    if kind == "string":
        return draw(st.text(max_size=8))
    if kind == "uuid":
        return draw(st.uuids())
    if kind in ("bytes", "records"):
        return draw(st.binary(max_size=8))
    if kind == "float64":
        return draw(st.floats(allow_nan=False))
    assert "fields" in field, kind
    return values_of(field["fields"], version, draw)


def plain(value: Any) -> Any:
    """Converts namespaces and kafka-python's structs to dictionaries."""
    if isinstance(value, Row):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def only(decoded: Any, wanted: Any) -> Any:
    """Returns `decoded` without the fields that its version lacks."""
    if isinstance(wanted, dict):
        return {name: only(decoded[name], inner) for name, inner in wanted.items()}
    if isinstance(wanted, list):
        assert len(decoded) == len(wanted)
        return [only(one, other) for one, other in zip(decoded, wanted, strict=True)]
    return decoded


def as_kafka_python(cls: Any, fields: list[dict[str, Any]], values: dict[str, Any], version: int) -> Any:
    """Makes kafka-python's struct from these values; its sets of operations hold bit numbers."""
    built: dict[str, Any] = {}
    for field in fields:
        name = snake(field["name"])
        if name not in values:
            continue
        value = values[name]
        if "fields" in field and value is not None:
            inner = getattr(cls, field["type"].removeprefix("[]"))
            many = field["type"].startswith("[]")
            rows = [
                as_kafka_python(inner, field["fields"], row, version) for row in (value if many else [value])
            ]
            value = rows if many else rows[0]
        if name not in cls.fields and name.endswith("authorized_operations"):
            name = "authorized_operations"
        if cls.fields[name]._type_str == "bitfield":
            value = {bit for bit in range(32) if value & 0xFFFFFFFF & 1 << bit}
        built[name] = value
    return cls(version=version, **built)


@pytest.mark.parametrize(("key", "version"), PAIRS)
@settings(max_examples=4)
@given(data=st.data())
def test_requests_as_kafka_python_writes_them(key: int, version: int, data: Any) -> None:
    name = f"{v.APIS[key].name}Request"
    fields = schema.descriptor(name)["fields"]
    values = values_of(fields, version, data.draw)
    cls = kafka_python(name)
    body = as_kafka_python(cls, fields, values, version).encode(version=version)
    decoded = plain(schema.decode_request(key, version, memoryview(bytes(body))))
    assert only(decoded, values) == values


@pytest.mark.parametrize(("key", "version"), PAIRS)
@settings(max_examples=4)
@given(data=st.data())
def test_responses_as_kafka_python_writes_them(key: int, version: int, data: Any) -> None:
    name = f"{v.APIS[key].name}Response"
    fields = schema.descriptor(name)["fields"]
    values = values_of(fields, version, data.draw)
    message = as_kafka_python(kafka_python(name), fields, values, version)
    message.with_header(correlation_id=77)
    expected = bytes(message.encode(header=True, framed=True))
    assert bytes(schema.encode_response(key, version, 77, values)) == expected


@pytest.mark.parametrize("key", list(v.APIS))
def test_the_table_of_versions_fits_the_descriptors(key: int) -> None:
    api = v.APIS[key]
    for side in ("Request", "Response"):
        described = schema.descriptor(f"{api.name}{side}")
        flexible = described["flexibleVersions"]
        assert described["apiKey"] == key
        assert in_versions(described["validVersions"], api.last)
        assert in_versions(described["validVersions"], api.first)
        assert api.flexible == (v.NEVER if flexible == "none" else int(flexible.rstrip("+")))


@pytest.mark.parametrize(("key", "version"), PAIRS)
@settings(max_examples=10)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_a_message_or_malformed(key: int, version: int, data: bytes) -> None:
    try:
        schema.decode_request(key, version, memoryview(data))
    except MalformedMessage:
        return
    assert schema.request_message(key, version).smallest <= len(data)


@pytest.mark.parametrize(("key", "version"), PAIRS)
@settings(max_examples=3)
@given(data=st.data())
def test_truncated_messages_are_malformed_and_bytes_behind_are_ignored(
    key: int, version: int, data: Any
) -> None:
    fields = schema.descriptor(f"{v.APIS[key].name}Request")["fields"]
    body = bytearray()
    schema.request_message(key, version).write(body, values_of(fields, version, data.draw))
    plain = schema.decode_request(key, version, memoryview(body))
    assert schema.decode_request(key, version, memoryview(bytes(body) + b"\0\0\0")) == plain
    for end in range(len(body)):
        with pytest.raises(MalformedMessage):
            schema.decode_request(key, version, memoryview(body)[:end])


# --- bombs


def peak_of(key: int, version: int, body: bytes) -> int:
    schema.request_message(key, version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            schema.decode_request(key, version, memoryview(body))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_count_beyond_the_bytes_allocates_nothing() -> None:
    assert peak_of(v.METADATA, 1, struct.pack(">i", 2**31 - 1)) < 20_000
    assert peak_of(v.METADATA, 9, b"\xff\xff\xff\xff\x0f") < 20_000
    assert peak_of(v.HEARTBEAT, 0, struct.pack(">h", 2**15 - 1) + b"abc") < 20_000


def test_negative_counts_are_malformed() -> None:
    peak_of(v.METADATA, 1, struct.pack(">i", -2))
    peak_of(v.OFFSET_COMMIT, 2, struct.pack(">hihqi", 0, 0, 0, 0, -1))


def test_all_counts_of_a_message_are_bounded_together() -> None:
    body = bytearray()
    write_varint(body, MAX_ELEMENTS + 2)
    body += b"\x01" * (MAX_ELEMENTS + 1) + b"\0"
    with pytest.raises(MalformedMessage, match="array elements"):
        schema.decode_request(v.DELETE_GROUPS, 2, memoryview(bytes(body)))


def test_a_varint_without_an_end_is_cut_short() -> None:
    with pytest.raises(MalformedMessage, match="varint"):
        Reader(memoryview(b"\xff" * 1000)).varint()


def test_null_where_none_may_be_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        schema.decode_request(v.HEARTBEAT, 0, memoryview(struct.pack(">hih", -1, 0, 0)))


def test_text_that_is_no_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        schema.decode_request(v.HEARTBEAT, 0, memoryview(struct.pack(">h2sih", 2, b"\xff\xfe", 0, 0)))


# --- encoding


def test_unknown_fields_and_wrong_values_are_our_errors() -> None:
    with pytest.raises(ValueError, match="no such fields"):
        schema.encode_response(v.HEARTBEAT, 0, 1, {"error": 1})
    with pytest.raises(ValueError, match="error_code"):
        schema.encode_response(v.HEARTBEAT, 0, 1, {"error_code": 2**20})


def test_unknown_tagged_fields_are_skipped() -> None:
    body = bytearray()
    schema.request_message(v.HEARTBEAT, 4).write(body, {"group_id": "g", "member_id": "m"})
    assert body.endswith(b"\0")
    body[-1:] = b"\x02\x09\x03abc\x10\x00"
    assert schema.decode_request(v.HEARTBEAT, 4, memoryview(bytes(body))).group_id == "g"


def test_tagged_fields_are_written_where_they_differ() -> None:
    row = {"name": "t", "topic_id": uuid.UUID(int=1), "error_code": 0}
    without = schema.encode_response(v.CREATE_TOPICS, 7, 1, {"topics": [row]})
    with_tag = schema.encode_response(
        v.CREATE_TOPICS, 7, 1, {"topics": [row | {"topic_config_error_code": 29}]}
    )
    assert len(with_tag) == len(without) + 4
