"""Delivery tags in ranges, compared with a plain dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base
from pamqp.commands import Tx
from tests.unit.amqp.face import Basic, Channel, Connection, MemoryHost
from tests.unit.queues.host import Host, run

from treecast.middleware.broker.queues import MessageQueue, Part, Run, StreamQueue, message
from treecast.middleware.broker.queues.arguments import QueueArguments, QueueType
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.amqp.session_unsettled import Given, Unsettled

steps = st.lists(
    st.tuples(
        st.sampled_from(["give", "take", "upto", "all", "back"]), st.integers(0, 30), st.integers(1, 5)
    ),
    max_size=40,
)


def part_of(count: int) -> Part:
    given_run = run(*[b"x"] * count)
    return Part(given_run, 0, 0, len(given_run.data), count, count, 1, 0.0, 0)


def told(taken: list[Given]) -> list[tuple[int, Part, int]]:
    """Returns (tag, part, number in it) of each message."""
    return [(one.first + n, one.part, one.offset + n) for one in taken for n in range(one.count)]


@given(steps)
def test_ranges_are_what_single_tags_would_be(program: list[tuple[str, int, int]]) -> None:
    queue: MessageQueue = Host().queue()
    ranges, plain = Unsettled(), {}
    next_tag = 1
    last: list[Given] = []
    for what, tag, count in program:
        if what == "give":
            part = part_of(count)
            ranges.add(Given(next_tag, count, 0, part, queue, None))
            for number in range(count):
                plain[next_tag + number] = (next_tag + number, part, number)
            next_tag += count
            continue
        if what == "take":
            tags = list(range(tag, tag + count))
            tags = tags if all(one in plain for one in tags) else []
            last = ranges.take(tag, count)
        elif what == "upto":
            tags = (
                [one for one in sorted(plain) if one <= tag or tag == 0] if tag in plain or tag == 0 else []
            )
            last = ranges.take_up_to(tag)
        elif what == "all":
            tags = sorted(plain)
            last = ranges.clear()
        else:
            ranges.put_back(last)
            plain.update({one[0]: one for one in told(last)})
            last = []
            tags = []
        assert told(last) == [plain.pop(one) for one in tags]
        assert ranges.count == len(plain)
    assert told(ranges.clear()) == [plain[one] for one in sorted(plain)]


class Log:
    """The log of a stream with one message."""

    def append(self, run: Run) -> list[int]:
        return []

    def full(self) -> bool:
        return False

    def read(self, queue: StreamQueue, cursor: object) -> None:
        one = Run(b"", b"s", message(b"\0\0", b"of a stream"), 1, 11)
        queue.arrived(cursor, [one], 0.0)  # type: ignore[arg-type]

    def close(self, cursor: object) -> None: ...

    def delete(self) -> None: ...


@pytest.mark.parametrize("method", [Basic.Nack(0, multiple=True), Basic.Recover(requeue=True)])
def test_what_a_stream_refuses_takes_no_message_of_another_queue_along(method: base.Frame) -> None:
    host = MemoryHost()
    client, other = host.client(), host.client()
    client.declare("q")
    client.publish("q", b"1", b"2")
    host.vhost.queues[b"s"] = StreamQueue(b"s", QueueArguments(QueueType.STREAM), Log(), "/", 0.0)
    client.ask(Basic.Qos(prefetch_count=10), Basic.QosOk)
    assert len(client.consume("q", "t")) == 2
    assert client.consume("s", "u")
    client.send(method)
    assert isinstance(client.got()[-1], Connection.Close)
    assert other.count("q") == 2


@pytest.mark.parametrize("way", ["nack", "recover", "commit"])
def test_what_the_disk_does_not_read_is_unsettled_as_before(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = MemoryHost()
    client, other = host.client(), host.client()
    client.declare()
    for body in (b"1", b"2", b"3"):
        client.publish("q", body, delivery_mode=2)
    assert len(client.consume()) == 3
    if way == "commit":
        client.ask(Tx.Select(), Tx.SelectOk)
    plain, reads = host.store.load, []

    def load(place: int) -> Run:
        reads.append(place)
        if len(reads) == 2:
            raise TreecastError(Fault.STORAGE, "the disk refuses")
        return plain(place)

    monkeypatch.setattr(host.store, "load", load)
    client.send(Basic.Recover(requeue=True) if way == "recover" else Basic.Nack(0, multiple=True))
    if way == "commit":
        client.send(Tx.Commit())
    assert isinstance(client.got()[-1], Channel.Close | Connection.Close)
    queue = host.vhost.queues[b"q"]
    assert (queue.unsettled, queue.unsettled_bytes, other.count()) == (0, 0, 3)
