"""Consumers of queues of other hosts: what one returns comes to the next before what is behind it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from treecast.middleware.broker.queues import Ask, QueueNotice, RemoteQueue
from treecast.middleware.broker.queues.reach import Say, Settling

from .host import run
from .joined_hosts import Host, Net, Taker

NUMBERS = [b"%d" % number for number in range(8)]


def three(**arguments: object) -> tuple[Net, list[Host]]:
    """Three hosts, and a queue `q` at the first."""
    net = Net()
    hosts = [net.add(number) for number in (1, 2, 3)]
    asked = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    hosts[0].vhost.queue_definitions.declare(b"q", arguments=asked)
    net.settle()
    return net, hosts


def end(host: Host, taker: Taker) -> None:
    """The consumer's channel ends."""
    host.vhost.cancel(taker.queue, taker, 0.0, ends=True)
    for part in taker.parts:
        taker.queue.requeue(part, 0, part.count, taker, 0.0, failed=True)


def close(net: Net, hosts: list[Host], first: Taker) -> None:
    end(hosts[1], first)


def cut(net: Net, hosts: list[Host], first: Taker) -> None:
    net.cut(1, 2)


@pytest.mark.parametrize("ends", [close, cut])
@pytest.mark.parametrize("second_at", [0, 2])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_single_active_consumer_gets_what_the_one_before_had_first(
    ends: Callable[[Net, list[Host], Taker], None], second_at: int, kind: str
) -> None:
    net, hosts = three(single_active_consumer=True, queue_type=kind)
    first, second = hosts[1].consume(b"q", 3), hosts[second_at].consume(b"q", 1000)
    hosts[0].publish(run(*NUMBERS))
    net.settle()
    assert (first.bodies, second.bodies) == (NUMBERS[:3], [])
    ends(net, hosts, first)
    net.settle()
    assert second.bodies == NUMBERS
    assert [part.redelivered for part in second.parts for _ in range(part.count)] == [True] * 3 + [False] * 5
    queue = hosts[0].vhost.queues[b"q"]
    assert (queue.ready, queue.unsettled, len(queue.consumers)) == (0, 8, 1)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("arrived", [0, 1, 2])
def test_what_is_on_its_way_to_a_consumer_that_leaves_comes_back_in_order(ends: bool, arrived: int) -> None:
    """It was sent in two notices. The next consumer waits already."""
    net, hosts = three(single_active_consumer=True)
    first, second = hosts[1].consume(b"q", 5), hosts[2].consume(b"q", 1000)
    net.settle()
    for numbers in (NUMBERS[:2], NUMBERS[2:4]):
        hosts[0].publish(run(*numbers))
        hosts[0].joined.send()
    for _ in range(arrived):
        net.step()
    got = len(first.bodies)
    assert got == 2 * arrived
    if ends:
        end(hosts[1], first)
    else:
        hosts[1].vhost.cancel(first.queue, first, 0.0)
    net.settle()
    queue = hosts[0].vhost.queues[b"q"]
    if not ends and got:  # the next one waits for these
        assert (second.bodies, queue.ready, queue.unsettled) == ([], 4 - got, got)
        for part in first.parts:
            first.queue.settle(part, 0, part.count, first)
        net.settle()
    assert second.bodies == (NUMBERS[:4] if ends else NUMBERS[got:4])
    assert queue.unsettled == len(second.bodies)
    assert first.bodies == NUMBERS[:got]


def test_more_that_is_returned_together_comes_in_order_and_counts_together() -> None:
    _, hosts = three(max_length=3)
    hosts[0].publish(run(*NUMBERS[:3]))
    got = [hosts[1].ask(b"q", Ask.GET, consumer=hosts[1].joined.new_number()).parts[0] for _ in range(3)]
    hosts[0].publish(run(*NUMBERS[3:6]))
    far = hosts[1].vhost.queues[b"q"]
    for part in reversed(got):
        far.requeue(part, 0, 1, None, 0.0, failed=False)
    counted = hosts[1].ask(b"q", Ask.COUNT).answer
    assert counted is not None
    assert counted.messages == 3
    assert hosts[2].consume(b"q").bodies == NUMBERS[3:6]  # the head was dropped, as it was too many


def test_consumers_that_wait_get_what_is_returned_together_in_order() -> None:
    net, hosts = three()
    hosts[0].publish(run(*NUMBERS[:4]))
    got = [hosts[1].ask(b"q", Ask.GET, consumer=hosts[1].joined.new_number()).parts[0] for _ in range(4)]
    waiting = hosts[2].consume(b"q")
    far = hosts[1].vhost.queues[b"q"]
    for part in reversed(got):
        far.requeue(part, 0, 1, None, 0.0, failed=False)
    net.settle()
    assert waiting.bodies == NUMBERS[:4]


def test_settlements_that_were_not_followed_are_not_forgotten() -> None:
    net, hosts = three()
    hosts[0].publish(run(b"a"))
    number = hosts[1].joined.new_number()
    (part,) = hosts[1].ask(b"q", Ask.GET, consumer=number).parts
    waiting = hosts[2].consume(b"q")
    notice = QueueNotice(Say.SETTLE, number, 1, part.position, Settling.REQUEUE, more=True)
    hosts[0].joined.told(2, notice, b"")
    assert waiting.bodies == []
    net.cut(1, 2)
    net.settle()
    assert waiting.bodies == [b"a"]


def test_a_declaration_at_another_host_renews_the_queue() -> None:
    _, hosts = three(expires=1000)
    queue = hosts[0].vhost.queues[b"q"]
    for now in (0.8, 1.6, 2.4):
        hosts[0].joined.now = now
        hosts[1].ask(b"q", Ask.COUNT)
        assert not queue.expired(now)
    assert queue.expired(3.5)


def test_notices_of_hosts_that_say_less_are_understood() -> None:
    old = msgspec.msgpack.encode([2, 7, 0, 0, 0])
    assert msgspec.msgpack.decode(old, type=QueueNotice) == QueueNotice(Say.CANCEL, 7)
    net, hosts = three()
    taker = hosts[1].consume(b"q", 2)
    hosts[0].publish(run(*NUMBERS[:3]))
    net.settle()
    hosts[0].joined.told(2, QueueNotice(Say.CANCEL, taker.number), b"")
    queue = hosts[0].vhost.queues[b"q"]
    assert (queue.ready, queue.unsettled, len(queue.consumers)) == (1, 2, 0)  # its messages stay its own


def test_what_is_on_its_way_is_remembered_within_the_window() -> None:
    net, hosts = three()
    taker = hosts[1].consume(b"q", 1000)
    for number in range(3000):
        hosts[0].publish(run(b"%d" % number))
        if number % 100 == 99:
            net.settle()
            for part in taker.parts:
                taker.queue.settle(part, 0, part.count, taker)
            taker.parts.clear()
    net.settle()
    (served,) = hosts[0].vhost.queues[b"q"].consumers.all()
    assert len(served._latest) <= 1001  # type: ignore[attr-defined]
    assert isinstance(taker.queue, RemoteQueue)
    assert len(taker.bodies) == 3000
