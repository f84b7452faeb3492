"""Bad input is counted by reason, delivers nothing wrong, and uses bounded memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.fabric.core.outgoing import Outgoing
from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.reorder import FILTERED, How, Progress
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.wire.segment import Kind, Message, Segment, control
from treecast.middleware.wire.segment_bodies import (
    Close,
    Gap,
    Heartbeat,
    Mode,
    Nak,
    Rejection,
    Report,
    Skip,
    Skipped,
    Totals,
)
from treecast.middleware.wire.segment_bodies import Expiry as Why

KEY = (1, 7, 1)
SETTINGS = StreamSettings(
    buffer_bytes=20_000,
    assembly_bytes=20_000,
    message_bytes=20_000,
    buffer_messages=50,
    catch_up_after=100_000,
    hold_bytes=5000,
)


def segments(sent: list[Outgoing]) -> list[Segment]:
    return [segment for out in sent for segment in out.segments()]


def data(
    sequence: int, records: int = 1, number: int = 0, total: int = 1, size: int = 10, content: bytes = b""
) -> Segment:
    return Segment(Kind.DATA, *KEY, sequence, records, number, total, 1, bytes(size), (), content)


def receiver() -> Receiver:
    return Receiver(2, KEY, SETTINGS, random.Random(1), 0.0, progress=Progress(0, 0))


def sender(*hosts: int) -> Sender:
    made = Sender(*KEY, SETTINGS, 0.0)
    for host in hosts:
        made.add_receiver(host, 0.0)
    return made


@pytest.mark.parametrize(
    ("segments", "reason"),
    [
        ([data(0), data(0)], "DUPLICATE"),
        ([data(1), data(1)], "DUPLICATE"),
        ([data(3, total=2), data(3, total=2)], "DUPLICATE"),
        ([data(1, records=2), data(0, records=2)], "MISALIGNED"),
        ([data(1, records=2), data(2, records=3)], "MISALIGNED"),
        ([data(0, total=2), data(0, number=1, total=2, content=b"word")], "CONTRADICTION"),
        ([data(0, total=1000, size=100)], "OVERSIZED"),
        ([control(Kind.CLOSE, *KEY, 1, Close(1).encode()), data(1)], "BEYOND_END"),
        ([data(3), control(Kind.CLOSE, *KEY, 1, Close(1).encode())], "BEYOND_END"),
        ([control(Kind.CLOSE, *KEY, 3, Close(1).encode())], "UNEXPECTED"),  # not sent by the origin
        ([control(Kind.SKIP, *KEY, 3, Skip((Skipped(0, 1, Why.AGE),)).encode())], "UNEXPECTED"),
        ([control(Kind.REPORT, *KEY, 1, Report(Mode.LIVE).encode())], "UNEXPECTED"),
        ([control(Kind.HEARTBEAT, *KEY, 1, b"x")], "BODY"),
        ([Segment(Kind.DATA, 1, 7, 2, 0, 1, 0, 1, 1, b"")], "OTHER_STREAM"),
    ],
)
def test_what_a_receiver_lets_go(segments: list[Segment], reason: str) -> None:
    one = receiver()
    for segment in segments:
        one.receive(segment, 0.0)
    assert one.counters.refused == {reason: 1}
    assert one.counters.received == len(segments)


def test_an_oversized_message_is_refused_once_and_does_not_stand_in_the_way() -> None:
    one = receiver()
    for segment in (data(0, records=3, number=999, total=1000, size=1), data(3)):
        one.receive(segment, 0.0)
    assert one.take(0.0) == []
    for number in range(3):
        one.receive(data(0, records=3, number=number, total=1000, size=100), 0.0)
    assert [delivery.message.sequence for delivery in one.take(0.0)] == [3]
    assert one.counters.refused == {"OVERSIZED": 1, "DUPLICATE": 2}
    assert (one.next, one.memory, one.progress.totals.refused) == (4, 0, {Rejection.OVERSIZED: 3})


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        (control(Kind.NAK, *KEY, 9, Nak((Gap(0, 1),)).encode()), "UNKNOWN_HOST"),
        (control(Kind.REPORT, *KEY, 9, Report(Mode.LIVE).encode()), "UNKNOWN_HOST"),
        (control(Kind.REPORT, *KEY, 2, bytes(200)), "BODY"),
        (control(Kind.REPORT, *KEY, 2, Report(Mode.LIVE, 0, 9, totals=Totals(9)).encode()), "INCONSISTENT"),
        (control(Kind.REPORT, *KEY, 2, b""), "BODY"),
        (control(Kind.HEARTBEAT, *KEY, 2, Heartbeat(0, 0).encode()), "UNEXPECTED"),
        (control(Kind.NAK, 1, 8, 1, 2, b""), "OTHER_STREAM"),
    ],
)
def test_what_a_sender_lets_go(segment: Segment, reason: str) -> None:
    one = sender(2)
    one.receive(segment, 0.0)
    assert one.counters.refused == {reason: 1}


def test_a_replayed_report_changes_nothing() -> None:
    one = sender(2)
    for _ in range(10):
        one.publish(b"x", 1, 0.0)
    one.to_send(0.0)
    old = control(Kind.REPORT, *KEY, 2, Report(Mode.LIVE, 0, 3, 9, 1, Totals(3)).encode())
    new = control(Kind.REPORT, *KEY, 2, Report(Mode.LIVE, 0, 8, 9, 2, Totals(8)).encode())
    for segment in (old, new, old):
        one.receive(segment, 0.1)
    assert one.counters.refused == {"STALE": 1}
    assert (one.row(2).live, one.row(2).outstanding, one.log.oldest) == (8, 2, 8)


def test_a_replayed_nak_is_answered_once_in_a_round_trip() -> None:
    one = sender(2)
    one.publish(b"x", 1, 0.0)
    one.to_send(0.0)
    for _ in range(50):
        one.receive(control(Kind.NAK, *KEY, 2, Nak((Gap(0, 1),), 100_000).encode()), 0.11)
    sent = [out for now in (0.11, 0.16, 0.2) for out in one.to_send(now) if out.kind is Kind.REPAIR]
    assert len(sent) == 1
    assert one.counters.refused == {"SUPPRESSED": 49}


def test_a_nak_for_everything_asks_for_a_bounded_number_of_messages() -> None:
    one = Sender(*KEY, StreamSettings(repair_rate=1e4, repair_burst=500), 0.0)
    one.add_receiver(2, 0.0)
    for _ in range(5000):
        one.publish(bytes(100), 1, 0.0)
    one.to_send(0.0)
    one.receive(control(Kind.NAK, *KEY, 2, Nak((Gap(0, 2**63),), 1000).encode()), 0.01)
    repairs = [out for out in one.to_send(0.1) if out.kind is Kind.REPAIR]
    assert 1 <= len(repairs) <= 5  # 500 bytes at once
    assert one.counters.refused == {"TOO_MANY": 1}


def test_a_full_buffer_takes_only_what_comes_next() -> None:
    one = receiver()
    for sequence in range(1, 200):
        one.receive(data(sequence, size=100), 0.0)
    assert one.counters.refused["NO_ROOM"] == 199 - 50
    one.receive(data(0), 0.1)
    assert len(one.take(0.1)) == 51


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 9), st.integers(0, 3)), max_size=300))
def test_memory_is_bounded_under_garbage(parts: list[tuple[int, int, int]]) -> None:
    one = receiver()
    for sequence, records, number in parts:
        one.receive(data(sequence, records, number, number + 2, 900), 0.0)
        one.receive(data(sequence + 20, records, size=900), 0.0)
        one.take(0.0)
        assert one.memory <= 20_000 + 20_000 + 2_000
    assert sum(out.size for out in one.to_send(9.0)) < 2500
    progress = one.progress
    assert progress.totals.settled == progress.next


@given(st.sampled_from(list(Kind)[2:9]), st.binary(max_size=90))
def test_bodies_of_garbage_break_nothing(kind: Kind, body: bytes) -> None:
    for end in (receiver(), sender(2)):
        end.receive(control(kind, *KEY, 2, body), 0.0)
        end.receive(control(kind, *KEY, 1, body), 0.0)
        end.to_send(0.1)


def test_a_clock_that_jumps_does_no_harm() -> None:
    one, other = sender(2), receiver()
    for now in (0.0, 1e9, 5.0, -1e9, 6.0):
        one.publish(b"x", 1, now)
        for segment in segments(one.to_send(now)):
            other.receive(segment, now)
        for segment in segments(other.to_send(now)):
            one.receive(segment, now)
        other.take(now)
    assert one.row(2).balanced
    assert other.progress.totals.settled == other.next


def test_a_message_too_large_or_for_a_closed_stream_is_not_taken() -> None:
    one = Sender(*KEY, StreamSettings(mtu=100), 0.0)
    with pytest.raises(ValueError):
        one.publish(bytes(44 * 65536), 1, 0.0)
    with pytest.raises(ValueError):
        one.publish(b"", 0, 0.0)
    assert one.end == 0
    one.close(0.0)
    with pytest.raises(ValueError):
        one.publish(b"x", 1, 0.0)


def test_what_the_judge_filters_or_refuses_is_settled_and_counted() -> None:
    def judge(message: Message) -> object:
        return {0: None, 1: FILTERED, 2: Rejection.INVALID}[message.sequence % 3]

    one = Receiver(2, KEY, SETTINGS, random.Random(1), 0.0, progress=Progress(0, 0), judge=judge)  # type: ignore[arg-type]
    for sequence in range(9):
        one.receive(data(sequence), 0.0)
    assert [(taken.message.sequence, taken.how) for taken in one.take(0.0)] == [
        (0, How.LIVE),
        (3, How.LIVE),
        (6, How.LIVE),
    ]
    totals = one.progress.totals
    assert (totals.live, totals.filtered, totals.refused) == (3, 3, {Rejection.INVALID: 3})
