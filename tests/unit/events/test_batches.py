"""Messages as records: round trips, and bytes that are not a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.broker.pubsub import NEVER, Message
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.relay.events.batches import BARRIER, Event, batch_of, events_in, events_of, record_of
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of
from treecast.middleware.wire.record_batch import build_batch, read_header
from treecast.shims.mqtt.codec_properties import Properties, write_properties
from treecast.shims.mqtt.codec_publish import read_publish_properties

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
PROPERTIES = st.builds(
    Properties,
    payload_format=st.sampled_from([None, 0, 1]),
    content_type=st.none() | TEXT,
    response_topic=st.none() | st.sampled_from(["a", "reply/to", "ключ"]),
    correlation_data=st.none() | st.binary(max_size=20),
    user=st.lists(
        st.tuples(TEXT | st.sampled_from(["mqtt.content-type", "mqtt.user.x", ""]), TEXT), max_size=4
    ).map(tuple),
)


def spelled(given: Properties) -> bytes:
    """Encodes properties as the face does for the broker: without their length."""
    written = write_properties(given)
    size = 1
    while written[size - 1] >= 0x80:
        size += 1
    return written[size:]


@given(PROPERTIES)
def test_properties_become_headers_and_properties_again(given: Properties) -> None:
    properties = spelled(given)
    assert properties_of(headers_of(properties)) == properties


MESSAGES = st.builds(
    Message,
    st.sampled_from([b"a", b"a/b/c", b"/", "ключ".encode()]),
    st.binary(max_size=300),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    PROPERTIES.map(spelled),
    st.sampled_from([NEVER, 1_700_000_000.25]),
)


@given(st.lists(st.tuples(MESSAGES, st.integers(0, 2**40), st.none() | st.just((7, 2**31 + 3))), min_size=1))
def test_messages_become_a_batch_and_messages_again(
    given: list[tuple[Message, int, tuple[int, int] | None]],
) -> None:
    for message, number, _ in given:
        message.number = number
    batch = build_batch([record_of(message, 1_700_000_000_000, lineage) for message, _, lineage in given])
    found = list(events_of(batch))
    assert len(found) == len(given)
    for event, (message, number, lineage) in zip(found, given, strict=True):
        promised = message.qos and number
        assert event.number == (number if promised else 0)
        assert event.lineage == (lineage if promised else None)
        for name in ("topic", "payload", "qos", "retain", "properties", "expires_at"):
            assert getattr(event.message, name) == getattr(message, name), name


FIELDS = ("topic", "payload", "qos", "retain", "stamp", "expires_at", "properties")


def shown(payload: bytes, *, plainly: bool) -> list[tuple[object, ...]] | None:
    """Returns the contents of the batch, or None if it is refused. `plainly`: read by way of records."""
    try:
        found = events_in(payload, read_header(payload, 0)) if plainly else events_of(payload)
    except TreecastError:
        return None
    return [
        (one.number, one.lineage, *(getattr(one.message, name) for name in FIELDS))
        if isinstance(one, Event)
        else (one.number, one.lineage, one.run.format, one.run.data)
        for one in found
    ]


@given(
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.none() | st.just((7, 2**31 + 3)),
    st.integers(0, 2**70),
    st.lists(st.tuples(st.integers(61, 4000), st.integers(1, 255)), max_size=3),
)
def test_what_is_written_and_read_in_place_is_what_records_would_be(
    given: list[Message],
    lineage: tuple[int, int] | None,
    stamp: int,
    changes: list[tuple[int, int]],
) -> None:
    for number, message in enumerate(given):
        message.number = number * 300
        message.stamp = stamp
    batch = batch_of(given, 1_700_000_000_000, lineage)
    assert batch == build_batch([record_of(message, 1_700_000_000_000, lineage) for message in given])
    changed = bytearray(batch_of(given, 1_700_000_000_000, lineage, summed=False))
    assert shown(bytes(changed), plainly=False) == shown(bytes(changed), plainly=True)
    for at, bits in changes:
        changed[61 + at % (len(changed) - 61)] ^= bits
    assert shown(bytes(changed), plainly=False) == shown(bytes(changed), plainly=True)


def test_a_barrier_is_nobodys_message() -> None:
    assert events_of(BARRIER) == []


@pytest.mark.parametrize(
    "header",
    [
        ("", b""),
        ("", None),
        ("", b"\3"),
        ("", b"\x09"),
        ("", b"\x11\0"),
        ("other", b"\1"),
        ("", b"\x31" + bytes(9)),
    ],
)
def test_a_first_header_that_is_wrong_is_refused(header: tuple[str, bytes | None]) -> None:
    with pytest.raises(TreecastError):
        list(events_of(build_batch([Record(b"t", b"", (header,), 1)])))


@given(st.binary(max_size=200), st.integers(0, 199))
def test_bytes_that_are_no_batch_are_refused(noise: bytes, at: int) -> None:
    good = bytearray(batch_of([Message(b"t", b"x" * 50, 1)], 1))
    with pytest.raises(TreecastError):
        list(events_of(noise))
    good[at % len(good)] ^= 0x55
    try:
        list(events_of(bytes(good)))
    except TreecastError:
        pass


@given(st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=30)), max_size=6))
def test_headers_of_others_become_properties_that_the_face_takes(
    headers: list[tuple[str, bytes | None]],
) -> None:
    properties = properties_of(headers)
    assert read_publish_properties(properties, 0, len(properties)).passed_on == properties
