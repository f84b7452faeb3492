"""A stream over an external log, which grows by itself, has holes, and may be long before the first send."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.unit.fabric.edges import ALONE, Collected, fabrics, until

from treecast.middleware.fabric.core.log import StreamLog
from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Message
from treecast.middleware.wire.segment_bodies import Expiry, Skipped

SETTINGS = StreamSettings(mtu=1400, send_at_once=20_000)


class DiskLog:
    """Messages of `records` each; those in `holes` were compacted away, those before `oldest` deleted."""

    def __init__(self, records: int = 5, size: int = 1000) -> None:
        self.end = 0
        self.oldest = 0
        self.holes: set[int] = set()
        self.iterations = 0
        self.trims = 0
        self._records = records
        self._size = size

    def grow(self, messages: int) -> None:
        self.end += messages * self._records

    def payload(self, sequence: int) -> bytes:
        return b"%d." % sequence * (self._size // 10)

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        self.iterations += 1
        if first < self.oldest:
            yield Skipped(first, min(self.oldest, end), Expiry.SIZE)
            first = self.oldest
        for sequence in range(first - first % self._records, end, self._records):
            if sequence in self.holes:
                yield Skipped(sequence, sequence + self._records, Expiry.COMPACTED)
            else:
                yield Message(sequence, self._records, self.payload(sequence))

    def trim(self, sequence: int, keep_bytes: int = 0) -> None:
        self.trims += 1

    def trimmed(self, first: int) -> dict[Expiry, int]:
        return {Expiry.SIZE: self.oldest - first} if first < self.oldest else {}

    def expire(self, now: float) -> None:
        pass

    def next_deadline(self) -> float:
        return NEVER


def talk(sender: Sender, receiver: Receiver, now: float) -> list[Message]:
    """Alternates between both ends until neither sends anything more at `now`. Returns the delivered
    messages.
    """
    got = []
    while True:
        there = [segment for out in sender.to_send(now) for segment in out.segments()]
        for segment in there:
            receiver.receive(segment, now)
        got += [delivery.message for delivery in receiver.take(now)]
        back = [segment for out in receiver.to_send(now) for segment in out.segments()]
        for segment in back:
            sender.receive(segment, now)
        if not there and not back:
            return got


def run(log: DiskLog, first: int, seconds: float = 3.0) -> tuple[Sender, Receiver, list[Message]]:
    typed: StreamLog = log
    sender = Sender(1, 7, 1, SETTINGS, 0.0, log=typed)
    sender.add_receiver(2, 0.0, first)
    receiver = Receiver(2, (1, 7, 1), SETTINGS, random.Random(1), 0.0, progress=Progress(first, first))
    got, now = [], 0.0
    while now < seconds:
        got += talk(sender, receiver, now)
        now += 0.01
    return sender, receiver, got


def test_what_was_there_before_is_replayed_and_not_sent_to_all() -> None:
    log = DiskLog()
    log.grow(200)
    sender, receiver, got = run(log, 100)
    assert [one.sequence for one in got] == list(range(100, 1000, 5))
    assert all(one.payload == log.payload(one.sequence) for one in got)
    assert "DATA" not in sender.counters.sent
    log.grow(3)
    assert sender.next_deadline(3.0) <= 3.0
    assert [one.sequence for one in talk(sender, receiver, 3.0)] == [1000, 1005, 1010]
    assert sender.counters.sent["DATA"] == 3
    talk(sender, receiver, 4.0)
    row = sender.row(2)
    assert (row.addressed, row.outstanding, row.live, row.balanced) == (915, 0, 15, True)
    assert log.trims > 0


def test_holes_are_skipped_with_their_reason_live_and_in_replay() -> None:
    log = DiskLog()
    log.grow(50)
    log.oldest = 50
    log.holes = {60, 65, 245, 255}
    sender, receiver, got = run(log, 0)
    assert [one.sequence for one in got] == [n for n in range(50, 250, 5) if n not in log.holes]
    log.grow(3)
    assert [one.sequence for one in talk(sender, receiver, 3.0)] == [250, 260]
    talk(sender, receiver, 4.0)
    assert dict(sender.row(2).expired) == {Expiry.SIZE: 50, Expiry.COMPACTED: 20}
    assert sender.row(2).closed


def test_a_turn_reads_the_log_once_and_sends_a_bounded_part_of_it() -> None:
    log = DiskLog()
    sender = Sender(1, 7, 1, SETTINGS, 0.0, log=log)
    sender.add_receiver(2, 0.0, 0)
    log.grow(100)
    turns = []
    while sender.next_deadline(0.0) <= 0.0:
        log.iterations = 0
        turns.append(sum(out.size for out in sender.to_send(0.0)))
        assert log.iterations <= 1
    assert sum(turns) > 30_000
    assert max(turns) < SETTINGS.send_at_once + 2000


def test_nothing_is_read_where_nobody_is_live() -> None:
    log = DiskLog()
    sender = Sender(1, 7, 1, SETTINGS, 0.0, log=log)
    log.grow(1_000_000)
    sender.to_send(0.0)
    assert log.iterations == 0
    sender.add_receiver(2, 1.0, log.end)
    log.grow(1)
    assert [out.kind.name for out in sender.to_send(1.0)] == ["ANNOUNCE", "DATA"]


def test_what_lies_behind_live_from_is_sent_to_all() -> None:
    log = DiskLog()
    log.grow(10)
    sender = Sender(1, 7, 1, SETTINGS, 0.0, log=log, live_from=40)
    sender.add_receiver(2, 0.0, 40)
    kinds = [(out.kind.name, out.to) for out in sender.to_send(0.0)]
    assert kinds == [("ANNOUNCE", 2), ("DATA", None), ("DATA", None)]


def test_messages_come_from_the_log_alone() -> None:
    sender = Sender(1, 7, 1, SETTINGS, 0.0, log=DiskLog())
    with pytest.raises(ValueError, match="come from its log"):
        sender.publish(b"x", 1, 0.0)


def test_a_message_that_cannot_be_cut_is_skipped() -> None:
    log = DiskLog(size=20_000_000)
    log.holes = {5}
    settings = StreamSettings(mtu=100)
    sender = Sender(1, 7, 1, settings, 0.0, log=log)
    sender.add_receiver(2, 0.0, 0)
    log.grow(1)
    assert {out.kind.name for out in sender.to_send(0.0)} == {"ANNOUNCE", "SKIP"}
    assert sender.row(2).outstanding == 5


async def test_a_log_that_grows_by_itself_between_fabrics() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, two):
        log, sink = DiskLog(), Collected()
        log.grow(5000)
        origin = one.originate(7, 3, log=log)
        origin.add_receiver(2, 0)
        joined = two.join(1, 7, 3, sink, progress=Progress(0, 0))
        for _ in range(20):
            log.grow(10)
            origin.grown()
        await until(lambda: joined.next == log.end)
        assert [one.message.sequence for one in sink.deliveries] == list(range(0, log.end, 5))
        assert two.counters.refused == {}


async def test_segments_of_a_later_epoch_are_not_followed_where_that_is_not_wanted() -> None:
    async with fabrics(1, 2) as (one, two):
        sink = Collected()
        two.join(1, 7, 3, sink, progress=Progress(0, 0))
        origin = one.originate(7, 4)
        origin.add_receiver(2, 0)
        origin.publish(b"of another partition", 1)
        await until(lambda: two.counters.refused.get("LATER_EPOCH", 0) > 0)
        assert sink.deliveries == []
        two.join(1, 7, 4, sink, progress=Progress(0, 0))
        await until(lambda: len(sink.deliveries) == 1)
