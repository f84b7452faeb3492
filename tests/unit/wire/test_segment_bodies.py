"""Bodies of segments: golden bytes, round trip, every cut, trailing data, arbitrary bytes."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.segment import SegmentError, SegmentFault
from treecast.middleware.wire.segment_bodies import (
    MAX_GAPS,
    MAX_MEMBERS,
    MAX_SKIPS,
    Announce,
    Beat,
    Close,
    Expiry,
    Gap,
    Heartbeat,
    Mode,
    Nak,
    Probe,
    Rejection,
    Report,
    Skip,
    Skipped,
    Totals,
)
from treecast.middleware.wire.stare import LAST_STATE

Body = Nak | Heartbeat | Report | Skip | Announce | Close | Probe | Beat
KINDS: list[type[Body]] = [Nak, Heartbeat, Report, Skip, Announce, Close, Probe, Beat]
SEQUENCE = st.integers(0, 2**63)
COUNT = st.integers(1, 2**32 - 1)
PARTS = st.tuples(st.integers(0, 65534), st.integers(0, 65535)).map(
    lambda pair: (pair[0], min(pair[1], 65535 - pair[0])) if pair[1] else (0, 0)
)

gaps = st.builds(lambda first, count, parts: Gap(first, first + count, *parts), SEQUENCE, COUNT, PARTS)
naks = st.builds(Nak, st.lists(gaps, max_size=MAX_GAPS).map(tuple), st.integers(0, 2**32 - 1))
heartbeats = st.builds(lambda a, b, echo: Heartbeat(max(a, b), min(a, b), echo), SEQUENCE, SEQUENCE, SEQUENCE)
totals = st.builds(
    Totals,
    *[st.integers(0, 2**40)] * 4,
    st.dictionaries(st.sampled_from(Expiry), COUNT),
    st.dictionaries(st.sampled_from(Rejection), COUNT),
)
reports = st.builds(
    lambda mode, first, room, stamp, total, rests: Report(
        mode, first, first + total.settled, room, stamp, total, rests=rests
    ),
    st.sampled_from(Mode),
    SEQUENCE,
    COUNT,
    SEQUENCE,
    totals,
    st.booleans(),
)
skips = st.builds(
    Skip,
    st.lists(
        st.builds(
            lambda first, count, why: Skipped(first, first + count, why),
            SEQUENCE,
            COUNT,
            st.sampled_from(Expiry),
        ),
        max_size=MAX_SKIPS,
    ).map(tuple),
)
announces = st.builds(
    lambda a, b, members, name: Announce(min(a, b), max(a, b), tuple(members), name),
    SEQUENCE,
    SEQUENCE,
    st.lists(st.integers(0, 2**32 - 1), max_size=MAX_MEMBERS),
    st.text(st.characters(codec="utf-8"), max_size=60),
)
probes = st.builds(Probe, st.integers(0, LAST_STATE), SEQUENCE)
beats = st.builds(Beat, *[SEQUENCE] * 4, st.booleans())
bodies = st.one_of(naks, heartbeats, reports, skips, announces, st.builds(Close, SEQUENCE), probes, beats)

GOLDEN: list[tuple[Body, str]] = [
    (
        Nak((Gap(1, 2), Gap(3, 9, 4, 5)), 250),
        "000000fa 0002 0000000000000001 0000000000000002 0000 0000"
        "0000000000000003 0000000000000009 0004 0005",
    ),
    (
        Heartbeat(5, 2, 7, 300, 4, 9),
        "0000000000000005 0000000000000002 0000000000000007 0000012c 0000000000000004 00000009",
    ),
    (
        Report(
            Mode.LIVE,
            10,
            31,
            64,
            9,
            Totals(1, 2, 3, 4, {Expiry.AGE: 5}, {Rejection.INVALID: 6}),
            40,
            7,
            250,
            held=8,
            near=11,
            near_bytes=12,
            shared=13,
        ),
        "01 000000000000000a 000000000000001f 00000040 0000000000000009"
        "0000000000000028 00000007 000000fa 0000000000000008 0000000b 000000000000000c 0000000d"
        "0000000000000001 0000000000000002"
        "0000000000000003 0000000000000004 01 02 0000000000000005 01 01 0000000000000006",
    ),
    (Skip((Skipped(1, 3, Expiry.SIZE),)), "0001 0000000000000001 0000000000000003 01"),
    (Announce(1, 2, (3, 4), "ü"), "0000000000000001 0000000000000002 0002 00000003 00000004 0002 c3bc"),
    (Close(8), "0000000000000008"),
    (Probe(300, 9), "0000012c 0000000000000009"),
    (
        Beat(1, 2, 3, 2**64 - 1, True),
        "0000000000000001 0000000000000002 0000000000000003 ffffffffffffffff 01",
    ),
    (
        Report(Mode.LIVE, echo=False, rests=True, held=8),
        "c1 0000000000000000 0000000000000000 00000000 0000000000000000"
        "0000000000000000 00000000 00000000 0000000000000008 00000000 0000000000000000 00000000"
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000 00 00",
    ),
]


@pytest.mark.parametrize(("body", "golden"), GOLDEN)
def test_golden_bytes_cuts_and_trailing_data(body: Body, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert body.encode().hex() == data.hex()
    assert type(body).decode(data) == body
    for wrong in [*(data[:length] for length in range(len(data))), data + b"\0"]:
        with pytest.raises(SegmentError) as caught:
            type(body).decode(wrong)
        assert caught.value.fault is SegmentFault.BODY


@given(bodies)
def test_round_trip(body: Body) -> None:
    assert type(body).decode(body.encode()) == body


@given(st.sampled_from(KINDS), st.binary(max_size=120))
def test_arbitrary_bytes_are_refused_or_read(kind: type[Body], data: bytes) -> None:
    try:
        body = kind.decode(data)
    except SegmentError:
        return
    assert kind.decode(body.encode()) == body


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Nak, Nak((Gap(2, 2),))),
        (Heartbeat, Heartbeat(1, 2)),
        (Report, Report(Mode.LIVE, 0, 2, totals=Totals(1))),  # the totals are not the number of records
        (Report, Report(Mode.LIVE, 3, 2)),
        (Skip, Skip((Skipped(2, 1, Expiry.AGE),))),
        (Announce, Announce(2, 1)),
        (Nak, Nak((Gap(1, 2, 65535, 1),))),  # a part beyond the last that a message may have
        (Nak, Nak((Gap(1, 2, 3, 0),))),
        (Report, Report(Mode.LIVE, parts=65536)),
        (Probe, Probe(LAST_STATE + 1, 0)),
        (Probe, Probe(2**32 - 1, 0)),
        (Beat, Beat(1, 1, 1, 1, cast(bool, 2))),
    ],
)
def test_contradictions_and_numbers_beyond_their_range_are_refused(kind: type[Body], body: Body) -> None:
    with pytest.raises(SegmentError):
        kind.decode(body.encode())


@pytest.mark.parametrize(
    "data", ["0001 0000000000000001 0000000000000003 63", "ffff", "0001 0000000000000001 0000000000000003 00"]
)
def test_unknown_reasons_and_counts_beyond_the_body(data: str) -> None:
    with pytest.raises(SegmentError):
        Skip.decode(bytes.fromhex(data))


def test_a_reason_that_stands_twice() -> None:
    once = Report(Mode.LIVE, 0, 5, totals=Totals(expired={Expiry.AGE: 5})).encode()
    entry = once[-10:-1]
    with pytest.raises(SegmentError):
        Report.decode(once[:-11] + b"\2" + entry + entry + b"\0")


@pytest.mark.parametrize(
    "body",
    [
        Nak((Gap(1, 2),) * (MAX_GAPS + 1)),
        Skip((Skipped(1, 2, Expiry.AGE),) * (MAX_SKIPS + 1)),
        Announce(0, 0, tuple(range(MAX_MEMBERS + 1))),
        Announce(0, 0, (), "x" * 256),
    ],
)
def test_bodies_that_are_too_long_are_not_written(body: Body) -> None:
    with pytest.raises(ValueError):
        body.encode()


def test_the_largest_bodies_fit_the_smallest_path() -> None:
    """1,280 bytes (RFC 8200) less IPv6, UDP, and a segment's header with its tag."""
    room = 1280 - 40 - 8 - 40 - 16
    assert len(Nak((Gap(1, 2),) * MAX_GAPS).encode()) <= room
    assert len(Skip((Skipped(1, 2, Expiry.AGE),) * MAX_SKIPS).encode()) <= room
    assert len(Announce(0, 0, tuple(range(MAX_MEMBERS)), "x" * 255).encode()) <= room
    everything = Totals(1, 1, 1, 1, dict.fromkeys(Expiry, 1), dict.fromkeys(Rejection, 1))
    assert len(Report(Mode.LIVE, 0, everything.settled, totals=everything).encode()) <= room
