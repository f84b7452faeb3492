"""Dead letters: their reasons, their history, and cycles."""

from __future__ import annotations

from tests.unit.queues.host import Host, Taker, bodies_of, run

from treecast.middleware.broker.queues import MessageQueue, Run


def dead_host(host: Host, **arguments: object) -> MessageQueue:
    host.queue("dead")
    return host.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead", **arguments)


def one(host: Host, name: str = "dead") -> Run:
    part = host.vhost.router.queue(name.encode()).get(host.now, no_ack=True)
    assert part is not None
    assert part.run is not None
    return part.run


def test_a_rejected_message_remembers_where_it_was(host: Host) -> None:
    queue = dead_host(host)
    host.publish(b"1", key="q", copies=(b"other",), expiration=60_000)
    part = host.get(queue)
    assert part is not None
    queue.reject(part, 0, 1, None, host.now)
    host.vhost.touched(queue, host.now)
    found = one(host)
    (death,) = found.deaths
    assert (death.queue, death.reason, death.count) == (b"q", "rejected", 1)
    assert (death.exchange, death.keys) == (b"", (b"q", b"other"))
    assert (death.time, death.expiration) == (1_700_000_000, 60_000)
    assert found.expiration == -1
    assert queue.unsettled == 0


def test_the_queues_own_keys_are_kept_where_it_names_none(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"dlx", "topic")
    host.queue("dead")
    host.bind("dlx", "dead", "q")
    host.queue("q", dead_letter_exchange="dlx", max_length=1)
    host.publish(b"1", b"2", b"3")
    assert host.drained("q") == [b"3"]
    assert host.drained("dead") == [b"1", b"2"]


def test_the_same_death_again_is_counted_and_the_latest_is_first(host: Host) -> None:
    host.queue("q", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="second")
    second = host.queue("second", dead_letter_exchange="", dead_letter_routing_key="q")
    host.publish(b"1")
    for _ in range(2):
        host.wait(1)
        part = host.get(second)
        assert part is not None
        second.reject(part, 0, 1, None, host.now)
        host.vhost.touched(second, host.now)
    host.wait(1)
    deaths = one(host, "second").deaths
    assert [(d.queue, d.reason, d.count) for d in deaths] == [
        (b"q", "expired", 3),
        (b"second", "rejected", 2),
    ]
    assert [death.first for death in deaths] == [True, False]


def test_who_goes_in_circles_by_himself_is_dropped(host: Host) -> None:
    host.queue("a", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="b")
    host.queue("b", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="a")
    host.publish(b"1", b"2", key="a")
    for _ in range(5):
        host.wait(1)
    assert host.vhost.cycled == 2
    assert host.drained("a") == []
    assert host.drained("b") == []


def test_a_full_queue_that_dead_letters_to_itself_ends(host: Host) -> None:
    host.queue("q", max_length=2, dead_letter_exchange="", dead_letter_routing_key="q")
    host.publish(*[b"%d" % n for n in range(10)])
    assert host.drained("q") == [b"8", b"9"]
    assert host.vhost.cycled == 8


def test_refused_publishes_are_dead_lettered_where_the_queue_says_so(host: Host) -> None:
    dead_host(host, max_length=1, overflow="reject-publish-dlx")
    assert host.publish(b"1", b"2", b"3") == (True, 1)
    assert host.drained("q") == [b"1"]
    assert one(host).deaths[0].reason == "maxlen"


def test_the_delivery_limit_counts_failures_and_not_returns(host: Host) -> None:
    queue = dead_host(host, queue_type="quorum", delivery_limit=2)
    host.publish(b"poison")
    for failed in (False, True, False, True, False):
        part = host.get(queue)
        assert part is not None
        queue.requeue(part, 0, 1, None, host.now, failed=failed)
    part = host.get(queue)
    assert part is not None
    assert (part.deliveries, part.redelivered) == (2, True)
    queue.requeue(part, 0, 1, None, host.now, failed=True)
    host.vhost.touched(queue, host.now)
    assert queue.ready == 0
    assert one(host).deaths[0].reason == "delivery_limit"


def test_a_dead_letter_reaches_a_consumer_at_once(host: Host) -> None:
    queue = dead_host(host)
    taker = Taker("t")
    host.vhost.consume(host.vhost.router.queue(b"dead"), taker, host.now)
    host.publish(b"1", b"2", b"3")
    part = queue.consumers  # q has no consumer
    assert len(part) == 0
    got = [host.get(queue) for _ in range(3)]
    assert got[1] is not None
    assert bodies_of(got[1]) == [b"2"]
    queue.reject(got[1], 0, 1, None, host.now)
    host.vhost.touched(queue, host.now)
    assert taker.got == [b"2"]


def test_time_passes_for_a_queue_that_has_the_name_of_a_deleted_one(host: Host) -> None:
    for _ in range(2):
        queue = dead_host(host, message_ttl=2000)
        host.publish(b"1")
        if host.now == 1000.0:
            host.vhost.queue_definitions.delete(b"q", None)
            host.wait(1)
    host.wait(1)
    assert queue.ready == 1
    host.wait(1)
    assert queue.ready == 0
    assert host.drained("dead") == [b"1"]


def test_an_exchange_that_is_not_there_takes_no_dead_letters(host: Host) -> None:
    host.queue("q", dead_letter_exchange="gone", max_length=0)
    host.vhost.publish(run(b"1"), host.now)
    assert host.vhost.dead_lettered == 0
