"""Operations on runs of bytes, compared with the plain codec, packet by packet."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter
from tests.unit.mqtt.face import packets_of

from treecast.middleware.broker.pubsub import PromisedRun, PubSub, PubSubSettings
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.wire.mqtt_publish import (
    head_at,
    in_other_format,
    publish_size,
    rising_acks,
    same,
    skip,
    without_ids,
    write_acks,
    write_numbered,
)
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311, MqttError
from treecast.shims.mqtt.codec_packets import Ack, Publish, encode
from treecast.shims.mqtt.codec_read import read_length
from treecast.shims.mqtt.session_publishing import Scan

versions = st.sampled_from([V311, V5])
payloads = st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 115, b"x" * 130, b"x" * 17_000]))
bodies = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"a/b", b"topic/of/some/length", b"b" * 40]), payloads, st.integers(1, 65535)
    ),
    min_size=1,
    max_size=8,
)
Bodies = list[tuple[bytes, bytes, int]]


def packets(found: Bodies) -> list[Publish]:
    return [Publish(topic, payload, 1, packet_id=number) for topic, payload, number in found]


def joined(found: list[Publish], version: int) -> bytes:
    return b"".join(encode(packet, version) for packet in found)


@given(bodies, versions, st.integers(1, 60_000))
@settings(max_examples=60)
def test_a_run_is_numbered_acknowledged_and_rewritten_as_its_packets_are(
    found: Bodies, version: int, first: int
) -> None:
    plain = packets(found)
    data = joined(plain, version)
    out = BytesWriter()
    out.write(b"before")
    write_numbered(out, data, first)
    numbered = [Publish(p.topic, p.payload, 1, packet_id=first + n) for n, p in enumerate(plain)]
    assert out.getvalue() == b"before" + joined(numbered, version)
    out = BytesWriter()
    write_acks(out, data)
    assert packets_of(out.getvalue(), version) == [Ack(codec.PUBACK, p.packet_id) for p in plain]
    lower = [Publish(p.topic, p.payload) for p in plain]
    assert without_ids(data) == joined(lower, version)
    other = V5 if version == V311 else V311
    assert in_other_format(data, version) == joined(plain, other)
    assert in_other_format(without_ids(data), version) == joined(lower, other)


@given(bodies, versions, st.integers(0, 10), st.integers(0, 8), st.integers(-1, 1))
@settings(max_examples=60)
def test_packets_are_stepped_over(found: Bodies, version: int, most: int, fit: int, more: int) -> None:
    plain = packets(found)
    sizes = [publish_size(p.topic, 1, b"", p.payload, version) for p in plain]
    room = max(sum(sizes[:fit]) + more, 0)
    expected = 0
    while expected < min(most, len(sizes)) and sum(sizes[:expected]) <= room:
        expected += 1
    count, at, lengths = skip(joined(plain, version), 0, min(most, len(sizes)), room)
    assert (count, at) == (expected, sum(sizes[:expected]))
    run = PromisedRun(version, joined(plain[:expected], version), expected, lengths)
    assert run.size == sum(message.size for message in run.messages())
    assert [message.topic for message in run.messages()] == [p.topic for p in plain[:expected]]
    assert [message.payload for message in run.messages()] == [p.payload for p in plain[:expected]]


@given(
    st.integers(1, 60_000), st.lists(st.integers(0, 3), max_size=8), st.integers(0, 10), st.binary(max_size=3)
)
def test_rising_acknowledgements_are_counted(first: int, steps: list[int], most: int, more: bytes) -> None:
    ids = [first]
    for step in steps:
        ids.append(ids[-1] + step)
    data = b"".join(encode(Ack(codec.PUBACK, number), V311) for number in ids) + more
    expected = 0
    while expected < min(most, len(ids)) and ids[expected] == first + expected:
        expected += 1
    assert rising_acks(data, 0, len(data), first, most) == expected
    assert rising_acks(data, 0, 3, first, most) == 0


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 40))
@example(b"eightbyt", b"eightbyt", 8)
@example(b"eightbyt-1", b"eightbyt-2", 10)
def test_bytes_at_two_places_are_compared(one: bytes, other: bytes, size: int) -> None:
    size = min(size, len(one), len(other))
    assert same(one + other, 0, len(one), size) == (one[:size] == other[:size])


@given(st.binary(max_size=6))
def test_the_quick_reader_of_lengths_agrees_with_the_plain_one(data: bytes) -> None:
    try:
        expected = read_length(data, 0, len(data))
    except MqttError:
        expected = -1, 0
    assert tuple(head_at(data, 0, len(data))) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"a/b", b"a/c", b"b", b"b/c", b"a/+", b"", b"$SYS/x", b"\xff"]),
            payloads,
            st.sampled_from([0, 0x30, 0x32, 0x32, 0x33, 0x3A]),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=8,
    ),
    versions,
    st.integers(0, 60),
)
@settings(max_examples=100)
def test_a_scan_takes_what_is_alike_whole_and_in_order(
    found: list[tuple[bytes, bytes, int, int]], version: int, missing: int
) -> None:
    """Compared with a plain form of the same rule. `b/...` has different targets here: none."""
    from treecast.middleware.broker.pubsub import Subscriber, Subscription

    hub = PubSub(PubSubSettings(), PubSubCounters())
    hub.subscribe(Subscription(Subscriber(1), b"a/#"))
    parts = []
    for topic, payload, first, number in found:
        packet = Publish(topic, payload, 1 if first != 0x30 else 0, packet_id=number)
        parts.append(bytes([first]) + encode(packet, version)[1:])
    data = b"".join(parts)
    end = max(len(data) - missing, 1)
    largest = 10_000
    expected, at, targets = 0, 0, None
    for (topic, _, first, number), part in zip(found, parts, strict=True):
        right = (
            topic in (b"a", b"a/b", b"a/c", b"b", b"b/c") and first == found[0][2] and first in (0x30, 0x32)
        )
        if not right or (first == 0x32 and not number) or at + len(part) > end or len(part) > largest:
            break
        if targets is not None and hub.routes.targets(topic) is not targets:
            break
        targets = hub.routes.targets(topic)
        expected, at = expected + 1, at + len(part)
    scan = Scan(hub, version, largest, 200)
    if found[0][2] in (0x30, 0x32):
        scan.look(data, 0, end)
        assert (scan.count, scan.stop, scan.targets) == (expected, at, targets)
