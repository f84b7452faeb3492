"""Messages in flight: ranges of packet ids, compared with a plain dictionary of messages."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.broker.pubsub import Message, PromisedRun
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V311
from treecast.shims.mqtt.codec_packets import Ack, Publish, encode
from treecast.shims.mqtt.deliveries import Delivery, InFlight, Part, whole

LAST = 65535


def run_of(payloads: list[bytes]) -> PromisedRun:
    data = [encode(Publish(b"t", payload, 1, packet_id=1), V311) for payload in payloads]
    return PromisedRun(V311, b"".join(data), len(payloads), sum(len(packet) - 2 for packet in data))


class Both:
    """Applies the same steps to ranges and to single messages."""

    def __init__(self, last: int) -> None:
        self.found = InFlight()
        self.found._last_id = last
        self.plain: dict[int, bytes] = {}
        self.last = last
        self.sent = 0

    def leave_ahead(self, part: int, singles: set[int]) -> None:
        """Leaves messages of an earlier cycle of ids in flight: three of a run, and single ones."""
        before = self.last
        if part:
            first = (before + part) % (LAST - 3) + 1
            self.found.put_part(whole(run_of([b"x", b"y", b"z"])), first)
            self.plain |= {first: b"x", first + 1: b"y", first + 2: b"z"}
        for single in sorted({(before + ahead) % LAST + 1 for ahead in singles} - self.plain.keys()):
            delivery = Delivery(Message(b"t", b"single"), 1, False, ())
            delivery.packet_id = single
            self.found.put(delivery)
            self.plain[single] = b"single"
        self.found._last_id = before

    def plain_id(self) -> int:
        while True:
            self.last = self.last % LAST + 1
            if self.last not in self.plain:
                return self.last

    def send_run(self, count: int, cuts: int) -> None:
        """Sends a run of `count`, in parts of at most `cuts`."""
        payloads = [b"%d" % (self.sent + number) for number in range(count)]
        part = whole(run_of(payloads))
        while part.left:
            first = self.found.next_id()
            self.found.put_part(part.cut(self.found.row(first, min(cuts, part.left)), 1 << 20), first)
        for payload in payloads:
            self.plain[self.plain_id()] = payload
        self.sent += count

    def send_one(self) -> None:
        payload = b"%d" % self.sent
        delivery = Delivery(Message(b"t", payload), 1, False, ())
        self.found.give_id(delivery)
        self.found.put(delivery)
        self.plain[self.plain_id()] = payload
        self.sent += 1

    def acknowledge(self, ids: list[int]) -> None:
        """Acknowledges as a session does: a range from the head at once, others one by one."""
        data = b"".join(encode(Ack(codec.PUBACK, packet_id), V311) for packet_id in ids)
        at = 0
        while at < len(ids):
            count = self.found.acknowledged(data, 4 * at, len(data))
            if count == 0:
                delivery = self.found.find(ids[at])
                assert (delivery is not None) == (ids[at] in self.plain)
                if delivery is not None:
                    self.found.remove(ids[at])
            for packet_id in ids[at : at + (count or 1)]:
                self.plain.pop(packet_id, None)
            at += count or 1

    def check(self) -> None:
        assert len(self.found) == len(self.plain)
        assert self.found.bytes == sum(delivery.size for delivery in self.found._sent.values())


steps = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 12), st.integers(1, 12)),
    st.tuples(st.just("one"), st.just(0), st.just(0)),
    st.tuples(st.just("oldest"), st.integers(1, 15), st.just(0)),
    st.tuples(st.just("any"), st.integers(0, 40), st.integers(0, 40)),
)


@given(
    st.integers(LAST - 40, LAST),
    st.integers(0, 30),
    st.sets(st.integers(0, 40), max_size=6),
    st.lists(steps, max_size=25),
)
@settings(max_examples=100)
def test_ranges_and_messages_come_to_the_same(
    last: int, part: int, singles: set[int], done: list[tuple[str, int, int]]
) -> None:
    both = Both(last)
    both.leave_ahead(part, singles)
    for kind, one, other in done:
        if kind == "run":
            both.send_run(one, other)
        elif kind == "one":
            both.send_one()
        elif kind == "oldest":
            both.acknowledge(list(both.plain)[:one])
        else:
            known = list(both.plain)
            both.acknowledge([known[n] if n < len(known) else 1000 + n for n in (one, other)])
        both.check()
    assert [(d.packet_id, d.message.payload) for d in both.found.all()] == list(both.plain.items())


def test_ids_that_come_round_to_the_oldest_range_leave_it_out() -> None:
    both = Both(LAST)
    both.send_run(5, 5)
    both.found._last_id = both.last = LAST - 3
    both.send_run(10, 4)
    assert list(both.plain)[5:] == [LAST - 2, LAST - 1, LAST, 6, 7, 8, 9, 10, 11, 12]
    assert [d.packet_id for d in both.found.all()] == list(both.plain)


def test_parts_that_follow_each_other_are_one() -> None:
    """Thus single acknowledgements leave no more state behind than acknowledgements by the hundred."""
    part = whole(run_of([b"%d" % number for number in range(50)]))
    found = InFlight()
    while part.left:
        first = found.next_id()
        found.put_part(part.cut(1, 1 << 20), first)
    assert len(found._parts) == 1
    assert isinstance(found._parts[0], Part)
    assert [d.message.payload for d in found.all()] == [b"%d" % number for number in range(50)]
