"""Request headers of every API against kafka-python's, and its own table of flexible versions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader as Reference

from treecast.shims.kafka import schema
from treecast.shims.kafka.codec import CodecError, RemoteCodecError, decode_request_header
from treecast.shims.kafka.versions import APIS

CASES = [(api.key, version) for api in APIS.values() for version in {api.first, api.last}]

EXAMPLES = 10  # of each API


def encoded(key: int, version: int, correlation: int, client: str | None, body: bytes = b"") -> memoryview:
    header = Reference(
        request_api_key=key, request_api_version=version, correlation_id=correlation, client_id=client
    )
    data: bytes = header.encode(flexible=version >= APIS[key].flexible)
    return memoryview(data + body)


@pytest.mark.parametrize(("key", "version"), CASES)
@settings(max_examples=EXAMPLES)
@given(correlation=st.integers(-(2**31), 2**31 - 1), client=st.none() | st.text(max_size=20))
def test_agrees_with_kafka_python(key: int, version: int, correlation: int, client: str | None) -> None:
    frame = encoded(key, version, correlation, client, b"body")
    header = decode_request_header(frame)
    assert (header.api_key, header.api_version) == (key, version)
    assert (header.correlation_id, header.client_id) == (correlation, client)
    assert bytes(frame[header.body :]) == b"body"


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_flexible_versions_are_those_of_the_descriptors(api: object) -> None:
    name, flexible = getattr(api, "name", ""), getattr(api, "flexible", 0)
    versions = schema.descriptor(f"{name}Request")["flexibleVersions"]
    assert versions == ("none" if flexible > 1000 else f"{flexible}+")


def test_golden_bytes() -> None:
    """Version 1, version 1 with a null client id, version 2 with a tagged field."""
    plain = decode_request_header(memoryview(bytes.fromhex("0003 0001 00000007 0002 6162 ff")))
    assert (plain.client_id, plain.body) == ("ab", 12)
    null = decode_request_header(memoryview(bytes.fromhex("0003 0001 00000007 ffff")))
    assert (null.client_id, null.body) == (None, 10)
    flexible = decode_request_header(memoryview(bytes.fromhex("0003 0009 00000007 0000 01 05 02 aabb ff")))
    assert (flexible.client_id, flexible.body) == ("", 15)


@pytest.mark.parametrize("version", [4, 99, 32767, -1])
def test_a_version_that_is_not_served_can_be_answered(version: int) -> None:
    """ApiVersions of a newer client: the response with error 35 needs its correlation id."""
    frame = memoryview((18).to_bytes(2) + version.to_bytes(2, signed=True) + b"\0\0\0\7\0\1c\0")
    assert decode_request_header(frame).correlation_id == 7


def test_an_unknown_key_is_read_as_version_1() -> None:
    header = decode_request_header(memoryview(bytes.fromhex("03e7 0000 00000001 ffff 80")))
    assert (header.api_key, header.body) == (999, 10)


def test_every_cut_is_refused() -> None:
    frame = encoded(0, 9, 1, "client")
    for length in range(len(frame)):
        with pytest.raises(RemoteCodecError):
            decode_request_header(frame[:length])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_only_a_codec_error(data: bytes) -> None:
    try:
        assert 10 <= decode_request_header(memoryview(data)).body <= len(data)
    except CodecError as error:
        assert str(error)  # noqa: PT017
