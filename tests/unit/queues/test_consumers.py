"""Consumers: whose turn it is, and what happens when they leave."""

from __future__ import annotations

import pytest
from tests.unit.queues.host import Host, Taker, bodies_of

from treecast.middleware.broker.queues import MessageQueue, Reason, Refusal
from treecast.middleware.model.timers import NEVER


def consume(host: Host, queue: MessageQueue, taker: Taker) -> Taker:
    host.vhost.consume(queue, taker, host.now)
    return taker


def settle(queue: MessageQueue, taker: Taker) -> None:
    for part in taker.parts:
        queue.settle(part, 0, part.count, taker)
    taker.parts.clear()


def test_equals_take_turns(host: Host) -> None:
    queue = host.queue()
    one, other = consume(host, queue, Taker("1")), consume(host, queue, Taker("2"))
    host.publish(*[b"%d" % n for n in range(6)])
    assert sorted([*one.got, *other.got]) == [b"%d" % n for n in range(6)]
    assert len(one.got) == len(other.got) == 3


class Asked(Taker):
    """Counts how often anybody was asked for room."""

    asked = 0

    @property
    def room(self) -> int:
        Asked.asked += 1
        return self.credit


def test_a_turn_does_not_cost_a_look_at_all_consumers(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may have a hundred thousand of them, and everybody would wait."""
    queue = host.queue()
    takers = [consume(host, queue, Asked(str(number), number % 3)) for number in range(300)]
    monkeypatch.setattr(Asked, "asked", 0)
    host.publish(*[b"%d" % number for number in range(200)])
    assert Asked.asked < 5 * 200
    assert sorted(len(taker.got) for taker in takers)[100:] == [1] * 200
    assert queue.consumers.all() == takers
    for taker in takers[::2]:
        host.vhost.cancel(queue, taker, host.now)
    assert queue.consumers.all() == takers[1::2]
    host.publish(*[b"x"] * 300)
    assert sum(len(taker.got) for taker in takers) == 200 + 50


def test_higher_priority_comes_first_while_it_has_room(host: Host) -> None:
    queue = host.queue()
    low = consume(host, queue, Taker("low"))
    high = consume(host, queue, Taker("high", 2, priority=5))
    host.publish(b"1", b"2", b"3")
    assert high.got == [b"1", b"2"]
    assert low.got == [b"3"]


def test_a_run_goes_as_one_part_to_a_consumer_alone(host: Host) -> None:
    queue = host.queue()
    taker = consume(host, queue, Taker("1"))
    host.publish(*[b"%d" % n for n in range(50)])
    assert [part.count for part in taker.parts] == [50]


def test_what_has_no_room_waits_and_is_pumped(host: Host) -> None:
    queue = host.queue()
    taker = consume(host, queue, Taker("1", 2))
    host.publish(b"1", b"2", b"3", b"4", b"5")
    assert (queue.ready, queue.unsettled, taker.unsettled) == (3, 2, 2)
    settle(queue, taker)
    taker.credit = 2
    queue.pump(host.now)
    assert taker.got == [b"1", b"2", b"3", b"4"]
    assert (queue.ready, queue.unsettled) == (1, 2)


def test_a_part_is_settled_piece_by_piece_and_the_rest_comes_back_in_place(host: Host) -> None:
    queue = host.queue()
    taker = consume(host, queue, Taker("1", 4))
    host.publish(*[b"%d" % n for n in range(6)])
    (part,) = taker.parts
    queue.settle(part, 1, 1, taker)
    host.vhost.cancel(queue, taker, host.now)
    queue.requeue(part, 2, 2, taker, host.now, failed=True)
    queue.requeue(part, 0, 1, taker, host.now, failed=True)
    assert (queue.unsettled, taker.unsettled, queue.unsettled_bytes) == (0, 0, 0)
    found = [host.get(queue) for _ in range(5)]
    assert [bodies_of(part) for part in found if part] == [[b"0"], [b"2"], [b"3"], [b"4"], [b"5"]]
    assert [part.redelivered for part in found if part] == [True, True, True, False, False]


def test_a_single_active_consumer_is_followed_by_the_next(host: Host) -> None:
    queue = host.queue("q", single_active_consumer=True)
    first, second = consume(host, queue, Taker("1", 1)), consume(host, queue, Taker("2"))
    host.publish(b"1", b"2")
    assert (first.got, second.got) == ([b"1"], [])
    settle(queue, first)
    host.vhost.cancel(queue, first, host.now)
    assert second.got == [b"2"]
    with pytest.raises(
        Refusal, match="not supported by classic queues with single active consumer"
    ) as caught:
        queue.get(host.now, no_ack=True)
    assert caught.value.reason is Reason.RESOURCE_LOCKED


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("how", ["ack", "fail", "close"])
def test_the_next_single_active_consumer_waits_for_what_the_one_before_has(
    host: Host, kind: str, how: str
) -> None:
    queue = host.queue("q", single_active_consumer=True, queue_type=kind)
    first, second = consume(host, queue, Taker("1", 2)), consume(host, queue, Taker("2"))
    host.publish(b"1", b"2", b"3")
    if how != "close":
        host.vhost.cancel(queue, first, host.now)
        host.publish(b"4")
        assert second.got == []
    else:
        host.vhost.cancel(queue, first, host.now, ends=True)
    (part,) = first.parts
    if how == "ack":
        settle(queue, first)
    else:
        queue.requeue(part, 1, 1, first, host.now, failed=True)
        queue.requeue(part, 0, 1, first, host.now, failed=True)
    queue.pump(host.now)
    left = {"ack": [b"3", b"4"], "fail": [b"1", b"2", b"3", b"4"], "close": [b"1", b"2", b"3"]}
    assert second.got == left[how]


def test_the_next_single_active_consumer_does_not_wait_for_ever(host: Host) -> None:
    queue = host.queue("q", single_active_consumer=True)
    first, second = consume(host, queue, Taker("1", 1)), consume(host, queue, Taker("2"))
    host.publish(b"1", b"2")
    host.vhost.cancel(queue, first, host.now)
    host.wait(4)
    assert second.got == []
    host.wait(2)
    assert second.got == [b"2"]
    assert host.vhost.deadline == NEVER
    settle(queue, first)


def test_a_single_active_consumer_and_an_exclusive_one(host: Host) -> None:
    """RabbitMQ refuses it at a classic queue, and ignores the wish at a quorum queue."""
    classic = host.queue("q", single_active_consumer=True)
    with pytest.raises(Refusal, match="in exclusive use") as caught:
        consume(host, classic, Taker("1", exclusive=True))
    assert caught.value.reason is Reason.ACCESS_REFUSED
    assert not len(classic.consumers)
    quorum = host.queue("r", single_active_consumer=True, queue_type="quorum")
    first, second = consume(host, quorum, Taker("1", exclusive=True)), consume(host, quorum, Taker("2"))
    host.publish(b"1", key="r")
    assert (first.got, second.got) == ([b"1"], [])


def test_in_a_quorum_queue_a_higher_priority_takes_over_when_all_is_settled(host: Host) -> None:
    queue = host.queue("q", queue_type="quorum", single_active_consumer=True)
    low = consume(host, queue, Taker("low"))
    host.publish(b"1")
    high = consume(host, queue, Taker("high", priority=1))
    host.publish(b"2")
    assert (low.got, high.got) == ([b"1"], [])
    settle(queue, low)
    queue.pump(host.now)
    assert high.got == [b"2"]


def test_an_exclusive_consumer_is_alone(host: Host) -> None:
    queue = host.queue()
    taker = consume(host, queue, Taker("1", exclusive=True))
    with pytest.raises(Refusal, match="queue 'q' in exclusive use") as caught:
        consume(host, queue, Taker("2"))
    assert caught.value.reason is Reason.ACCESS_REFUSED
    host.vhost.cancel(queue, taker, host.now)
    consume(host, queue, Taker("2"))
    with pytest.raises(Refusal):
        consume(host, queue, Taker("3", exclusive=True))


def test_a_message_that_may_not_wait_reaches_who_is_there(host: Host) -> None:
    queue = host.queue("q", message_ttl=0)
    host.publish(b"1")
    assert queue.ready == 0
    taker = consume(host, queue, Taker("1", 1))
    host.publish(b"2", b"3")
    assert taker.got == [b"2"]
    assert queue.ready == 0


def test_the_last_consumer_takes_an_auto_delete_queue_along(host: Host) -> None:
    queue = host.vhost.queue_definitions.declare(b"q", auto_delete=True, now=host.now)
    taker = consume(host, queue, Taker("1"))
    host.publish(b"1")
    host.vhost.cancel(queue, taker, host.now)
    assert host.vhost.queues == {}
    queue.requeue(taker.parts[0], 0, 1, taker, host.now, failed=True)
    assert host.memory.runs == {}


def test_consumers_hear_that_their_queue_is_deleted(host: Host) -> None:
    queue = host.queue()
    taker = consume(host, queue, Taker("1"))
    host.vhost.queue_definitions.delete(b"q", None)
    assert taker.ended


def test_what_nobody_settles_leaves_memory(host: Host) -> None:
    queue = host.queue()
    taker = consume(host, queue, Taker("1"))
    body = bytes(100_000)
    for _ in range(30):
        host.publish(body, persistent=False)
    in_memory = sum(part.size for part in taker.parts if part.run is not None)
    assert in_memory <= queue._settings.resident_bytes + len(body)
    host.vhost.cancel(queue, taker, host.now)
    for part in taker.parts:
        queue.requeue(part, 0, 1, taker, host.now, failed=True)
    assert host.drained("q") == [body] * 30
    assert host.memory.runs == {}
