"""Exchanges: routing of each type, bindings between exchanges, and the effects of deletion."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.queues.host import Headers, Host, Taker

from treecast.middleware.broker.queues import Destination, Reason, Refusal, by_content
from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.schemas.check import check_filter
from treecast.middleware.filters.schemas.reader import SchemaReader
from treecast.middleware.model.topic_schema import SchemaVersion, TopicSchema, read_fields
from treecast.middleware.model.wishes import ContentFilter, RecordSchema

ALL_HEADERS = {
    b"both": {"a": 1, "b": "x"},
    b"one": {"a": 1},
    b"none": {"c": True},
    b"truth": {"a": True},
    b"float": {"a": 1.0},
    b"private": {"a": 1, "b": "x", "x-p": 5},
}


def test_the_default_exchange_routes_by_the_names_of_queues(host: Host) -> None:
    host.queue("q")
    assert host.publish(b"1", key="q") == (True, 1)
    assert host.publish(b"2", key="r") == (False, 1)
    assert host.drained("q") == [b"1"]


def test_a_queue_gets_a_message_once_however_many_bindings_match(host: Host) -> None:
    host.queue("q")
    host.vhost.exchange_definitions.declare(b"t", "topic")
    host.bind("t", "q", "a.#")
    host.bind("t", "q", "#.b")
    host.bind("t", "q", "a.*")
    host.publish(b"1", exchange="t", key="a.b")
    assert host.drained("q") == [b"1"]


@pytest.mark.parametrize(("kind", "expected"), [("direct", ["a"]), ("fanout", ["a", "b"]), ("topic", ["a"])])
def test_direct_fanout_and_topic(host: Host, kind: str, expected: list[str]) -> None:
    host.vhost.exchange_definitions.declare(b"x", kind)
    for name in ("a", "b"):
        host.queue(name)
        host.bind("x", name, name)
    host.publish(b"1", exchange="x", key="a")
    assert [name for name in ("a", "b") if host.drained(name)] == expected


def test_modulus_hash_gives_equal_keys_to_one_queue_whatever_their_bindings(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"x", "x-modulus-hash")
    assert host.publish(b"lost", exchange="x", key="k")[0] is False
    names = [f"q{number}" for number in range(4)]
    for name in reversed(names):
        host.queue(name)
        host.bind("x", name, "unlike")
    for number in range(400):
        host.publish(b"%d" % (number % 40), exchange="x", key=f"k{number % 40}")
    found = {name: host.drained(name) for name in names}
    assert sum(map(len, found.values())) == 400
    assert all(len(bodies) >= 40 for bodies in found.values())
    whole = [set(bodies) for bodies in found.values()]
    assert sum(map(len, whole)) == 40  # no key is in two queues


def test_local_random_gives_each_run_to_one_queue_that_is_here(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"x", "x-local-random")
    names = ["a", "b", "c"]
    for name in names:
        host.queue(name)
        host.bind("x", name, "")
    host.vhost.queues[b"c"].home = 2
    for number in range(10):
        assert host.publish(b"%d" % number, exchange="x", key="k")[0] is True
    assert [len(host.drained(name)) for name in ("a", "b")] == [5, 5]
    host.vhost.queues[b"c"].home = 0
    assert host.drained("c") == []


@pytest.mark.parametrize("kind", ["x-modulus-hash", "x-local-random"])
def test_exchanges_that_choose_a_queue_are_bound_to_queues_only(host: Host, kind: str) -> None:
    host.vhost.exchange_definitions.declare(b"x", kind)
    host.queue("q")
    host.bind("x", "q", "k")
    with pytest.raises(Refusal, match="can be bound to queues only"):
        host.vhost.bindings.bind(b"x", Destination(b"amq.fanout", True), b"")
    host.vhost.bindings.unbind(b"x", Destination(b"q", False), b"k")
    assert host.publish(b"1", exchange="x", key="k")[0] is False


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all", [b"both", b"private"]),
        (None, [b"both", b"private"]),
        ("any", [b"both", b"one", b"private"]),
        ("all-with-x", [b"private"]),
        ("any-with-x", [b"both", b"one", b"private"]),
    ],
)
def test_headers(host: Host, kind: str | None, expected: list[bytes]) -> None:
    host.vhost.router.reader = Headers(ALL_HEADERS)
    host.vhost.exchange_definitions.declare(b"h", "headers")
    host.queue("q")
    asked = {"a": 1, "b": "x", "x-p": 5, **({"x-match": kind} if kind else {})}
    host.vhost.bindings.bind(b"h", Destination(b"q", False), b"", asked)
    for body in ALL_HEADERS:
        host.publish(body, exchange="h")
    assert host.drained("q") == expected


def test_a_header_without_a_value_asks_for_its_presence(host: Host) -> None:
    host.vhost.router.reader = Headers(ALL_HEADERS)
    host.queue("q")
    host.vhost.bindings.bind(b"amq.headers", Destination(b"q", False), b"", {"b": None})
    for body in ALL_HEADERS:
        host.publish(body, exchange="amq.headers")
    assert host.drained("q") == [b"both", b"private"]


def test_an_unknown_way_to_match_is_refused(host: Host) -> None:
    host.queue("q")
    with pytest.raises(Refusal, match="Invalid x-match field value 'some'") as caught:
        host.bind("amq.headers", "q", x_match="some")
    assert caught.value.reason is Reason.PRECONDITION_FAILED


def test_exchanges_bound_in_a_ring_route_once(host: Host) -> None:
    for name in (b"a", b"b", b"c"):
        host.vhost.exchange_definitions.declare(name, "fanout")
    for source, target in ((b"a", b"b"), (b"b", b"c"), (b"c", b"a")):
        host.vhost.bindings.bind(source, Destination(target, True), b"")
    host.queue("q")
    host.bind("c", "q")
    host.bind("b", "q")
    host.publish(b"1", exchange="a")
    assert host.drained("q") == [b"1"]


def test_an_alternate_exchange_gets_what_is_routed_nowhere(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"x", "direct", arguments={"alternate-exchange": "spare"})
    host.vhost.exchange_definitions.declare(b"spare", "fanout")
    host.queue("q")
    host.queue("lost")
    host.bind("x", "q", "k")
    host.bind("spare", "lost")
    host.publish(b"1", exchange="x", key="k")
    assert host.publish(b"2", exchange="x", key="other") == (True, 1)
    assert host.drained("q") == [b"1"]
    assert host.drained("lost") == [b"2"]


def test_copies_are_routed_by_their_keys_too(host: Host) -> None:
    for name in ("a", "b"):
        host.queue(name)
    host.publish(b"1", key="a", copies=(b"b", b"a"))
    assert host.drained("a") == [b"1"]
    assert host.drained("b") == [b"1"]


def test_routes_are_not_remembered_beyond_a_change(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"x", "topic")
    host.queue("a")
    host.bind("x", "a", "k")
    host.publish(b"1", exchange="x", key="k")
    host.queue("b")
    host.bind("x", "b", "#")
    host.publish(b"2", exchange="x", key="k")
    host.vhost.bindings.unbind(b"x", Destination(b"a", False), b"k")
    host.publish(b"3", exchange="x", key="k")
    host.vhost.queue_definitions.delete(b"b", None)
    assert host.publish(b"4", exchange="x", key="k") == (False, 1)
    assert host.drained("a") == [b"1", b"2"]


def test_bindings_that_differ_in_arguments_are_two(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"x", "topic")
    host.queue("q")
    host.bind("x", "q", "k")
    host.bind("x", "q", "k", n=1)
    host.bind("x", "q", "k", n=1)
    assert len(host.vhost.bindings.of(Destination(b"q", False))) == 2
    host.vhost.bindings.unbind(b"x", Destination(b"q", False), b"k")
    assert host.publish(b"1", exchange="x", key="k") == (True, 1)
    host.vhost.bindings.unbind(b"x", Destination(b"q", False), b"k", {"n": 1})
    assert host.publish(b"1", exchange="x", key="k") == (False, 1)


def test_an_auto_delete_exchange_goes_with_its_last_binding_and_takes_others_along(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"first", "fanout", auto_delete=True)
    host.vhost.exchange_definitions.declare(b"second", "fanout", auto_delete=True)
    host.vhost.bindings.bind(b"first", Destination(b"second", True), b"")
    host.queue("q")
    host.bind("second", "q")
    host.vhost.queue_definitions.delete(b"q", None)
    assert b"second" not in host.vhost.exchanges
    assert b"first" not in host.vhost.exchanges


def test_an_internal_exchange_is_for_exchanges(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"in", "fanout", internal=True)
    host.vhost.exchange_definitions.declare(b"x", "fanout")
    host.vhost.bindings.bind(b"x", Destination(b"in", True), b"")
    host.queue("q")
    host.bind("in", "q")
    with pytest.raises(Refusal, match="cannot publish to internal exchange 'in' in vhost '/'"):
        host.vhost.router.may_publish(b"in")
    host.publish(b"1", exchange="x")
    assert host.drained("q") == [b"1"]


@pytest.mark.parametrize(
    ("attempt", "reason", "words"),
    [
        (
            lambda v: v.exchange_definitions.declare(b"x", "fanout"),
            Reason.PRECONDITION_FAILED,
            "inequivalent arg 'type'",
        ),
        (
            lambda v: v.exchange_definitions.declare(b"x", "direct", durable=False),
            Reason.PRECONDITION_FAILED,
            "inequivalent arg 'durable' for exchange 'x' in vhost '/': received 'false'",
        ),
        (
            lambda v: v.exchange_definitions.declare(b"y", "odd"),
            Reason.PRECONDITION_FAILED,
            "unknown exchange type 'odd'",
        ),
        (
            lambda v: v.exchange_definitions.declare(b"y", "x-federation-upstream"),
            Reason.COMMAND_INVALID,
            "unknown exchange type 'x-federation-upstream'",
        ),
        (
            lambda v: v.exchange_definitions.declare(b"amq.y", "direct"),
            Reason.ACCESS_REFUSED,
            "reserved prefix 'amq.*'",
        ),
        (lambda v: v.exchange_definitions.declare(b"", "direct"), Reason.ACCESS_REFUSED, "default exchange"),
        (
            lambda v: v.exchange_definitions.delete(b"amq.topic"),
            Reason.ACCESS_REFUSED,
            "deletion of system exchange",
        ),
        (lambda v: v.exchange_definitions.delete(b"x", if_unused=True), Reason.PRECONDITION_FAILED, "in use"),
        (
            lambda v: v.bindings.bind(b"x", Destination(b"no", False), b""),
            Reason.NOT_FOUND,
            "no queue 'no' in vhost '/'",
        ),
        (
            lambda v: v.bindings.bind(b"no", Destination(b"q", False), b""),
            Reason.NOT_FOUND,
            "no exchange 'no'",
        ),
        (
            lambda v: v.bindings.bind(b"", Destination(b"q", False), b""),
            Reason.ACCESS_REFUSED,
            "default exchange",
        ),
        (lambda v: v.router.may_publish(b"no"), Reason.NOT_FOUND, "no exchange 'no' in vhost '/'"),
    ],
)
def test_what_is_refused(host: Host, attempt: object, reason: Reason, words: str) -> None:
    host.vhost.exchange_definitions.declare(b"x", "direct")
    host.queue("q")
    host.bind("x", "q", "k")
    with pytest.raises(Refusal) as caught:
        attempt(host.vhost)  # type: ignore[operator]
    assert caught.value.reason is reason
    assert words in caught.value.detail


def test_what_is_not_there_is_deleted_and_unbound_all_the_same(host: Host) -> None:
    host.vhost.exchange_definitions.delete(b"no")
    host.vhost.bindings.unbind(b"no", Destination(b"q", False), b"k")
    assert host.vhost.queue_definitions.delete(b"no", None) == 0


def test_headers_count_where_a_binding_leads_to_an_exchange() -> None:
    vhost = Host().vhost
    vhost.queue_definitions.declare(b"q")
    vhost.exchange_definitions.declare(b"x", "direct")
    vhost.bindings.bind(b"x", Destination(b"q", False), b"k")
    assert not vhost.router.looks_at_headers(b"x")
    for _ in range(2):
        vhost.bindings.bind(b"x", Destination(b"amq.headers", True), b"k")
    assert vhost.router.looks_at_headers(b"x")
    vhost.bindings.unbind(b"x", Destination(b"amq.headers", True), b"k")
    assert not vhost.router.looks_at_headers(b"x")
    assert vhost.router.looks_at_headers(b"amq.headers")


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_binding_with_a_filter_passes_only_some_messages(kind: str) -> None:
    host = Host()
    low, dollars, high = (b'{"n": %d}' % number for number in (5, 60, 70))
    of = {low: {"unit": "EUR"}, dollars: {"unit": "USD"}, high: {"unit": "EUR"}}
    host.vhost.router.reader = Headers(of)
    host.vhost.exchange_definitions.declare(b"x", kind)
    for name in ("some", "twice", "all"):
        host.queue(name)
    filtered = {"x-treecast-filter": "n > 5 and headers.unit == EUR or topic == other"}
    match = {"unit": "EUR", "x-match": "any"} if kind == "headers" else {}
    for name, arguments in (("some", filtered), ("twice", filtered), ("twice", {}), ("all", {})):
        host.vhost.bindings.bind(b"x", Destination(name.encode(), False), b"k", match | arguments)
    for body in (low, dollars, high):
        host.publish(body, exchange="x", key="k")
    every = [low, high] if kind == "headers" else [low, dollars, high]
    assert host.drained("some") == [high]
    assert host.drained("twice") == host.drained("all") == every
    host.vhost.bindings.unbind(b"x", Destination(b"some", False), b"k", match | filtered)
    host.vhost.bindings.unbind(b"x", Destination(b"twice", False), b"k", match | filtered)
    assert not by_content(host.vhost.exchanges, b"x")
    host.publish(high, exchange="x", key="k")
    assert (host.drained("some"), host.drained("twice")) == ([], [high])


def test_filters_behind_other_exchanges_are_asked_for_each_message() -> None:
    host = Host()
    host.vhost.router.reader = Headers({})
    for name in (b"far", b"near", b"front"):
        host.vhost.exchange_definitions.declare(name, "fanout")
    host.vhost.exchange_definitions.declare(b"before", "direct", arguments={"alternate-exchange": "front"})
    host.vhost.bindings.bind(b"near", Destination(b"far", True), b"")
    host.vhost.bindings.bind(b"front", Destination(b"near", True), b"")
    host.queue("q")
    names = (b"before", b"front", b"near", b"far", b"", b"amq.fanout")
    assert not any(by_content(host.vhost.exchanges, name) for name in names)
    host.vhost.bindings.bind(b"far", Destination(b"q", False), b"", {"x-treecast-filter": "n > 5"})
    found = [name for name in names if by_content(host.vhost.exchanges, name)]
    assert found == [b"before", b"front", b"near", b"far"]


def test_dead_letters_pass_a_filter_one_by_one() -> None:
    host = Host()
    host.vhost.router.reader = Headers({})
    host.vhost.exchange_definitions.declare(b"dead", "fanout")
    host.queue("grave")
    host.vhost.bindings.bind(b"dead", Destination(b"grave", False), b"", {"x-treecast-filter": "n > 5"})
    queue, taker = host.queue("q", dead_letter_exchange="dead"), Taker("t")
    host.vhost.consume(queue, taker, host.now)
    bodies = [b'{"n": %d}' % number for number in (1, 9, 2, 8)]
    host.publish(*bodies)
    (part,) = taker.parts
    queue.reject(part, 0, part.count, taker, host.now)
    host.vhost.touched(queue, host.now)
    assert host.drained("grave") == [bodies[1], bodies[3]]


UNREADABLE = [("direct", "n <"), ("direct", 7), ("direct", "x" * 5000), ("x-local-random", "n > 1")]


@pytest.mark.parametrize(("kind", "text"), UNREADABLE)
def test_filters_that_cannot_be_read_are_refused(host: Host, kind: str, text: object) -> None:
    host.vhost.exchange_definitions.declare(b"x", kind)
    host.queue("q")
    with pytest.raises(Refusal, match="x-treecast-filter") as refusal:
        host.vhost.bindings.bind(b"x", Destination(b"q", False), b"k", {"x-treecast-filter": text})
    assert refusal.value.reason is Reason.PRECONDITION_FAILED
    assert not host.vhost.exchanges[b"x"].bindings


class _Orders:
    """The topic `orders` declares one field."""

    def __init__(self) -> None:
        self.reader = SchemaReader(TopicSchema("json", (SchemaVersion(read_fields("n:u8")),)))
        self.counted: list[str] = []

    def of(self, topic: str) -> RecordSchema | None:
        return self.reader if topic == "orders" else None

    def unmet(self, topic: str) -> None:
        self.counted.append(topic)

    def check(self, levels: tuple[str, ...], content: ContentFilter) -> None:
        assert isinstance(content, StatelessFilter)
        if levels == ("orders",):
            check_filter(content.tree, self.reader.schema)


def test_the_fields_of_a_binding_are_those_that_the_topic_declares() -> None:
    host, schemas = Host(), _Orders()
    host.vhost.router.reader, host.vhost.router.schemas = Headers({}), schemas
    host.vhost.exchange_definitions.declare(b"x", "topic")
    host.queue("q")
    to = Destination(b"q", False)
    with pytest.raises(Refusal, match="no field m") as caught:
        host.vhost.bindings.bind(b"x", to, b"orders", {"x-treecast-filter": "m > 5"})
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    # Topics that declare nothing may have the field.
    host.vhost.bindings.bind(b"x", to, b"#", {"x-treecast-filter": "m > 5"})
    host.vhost.bindings.bind(b"x", to, b"orders", {"x-treecast-filter": "n > 5"})
    for body in (b'{"n": 9}', b'{"n": 999}', b'{"n": 1, "m": 9}'):
        host.publish(body, exchange="x", key="orders")
    host.publish(b'{"m": 9}', exchange="x", key="bills")
    assert host.drained("q") == [b'{"n": 9}', b'{"m": 9}']
    assert schemas.counted == ["orders"]


def to(name: str) -> Destination:
    return Destination(name.encode(), False)


def test_many_bindings_with_filters_come_and_go() -> None:
    host, rng = Host(), Random(3)
    host.vhost.router.reader = Headers({})
    host.vhost.exchange_definitions.declare(b"x", "topic")
    wanted: dict[str, tuple[int, str]] = {}
    for round in range(4):
        for number in rng.sample(range(300), 150):
            name = f"q{number}"
            if name in wanted:
                floor, key = wanted.pop(name)
                asked = {"x-treecast-filter": f"n > {floor}"}
                host.vhost.bindings.unbind(b"x", to(name), key.encode(), asked)
            else:
                floor, key = wanted[name] = rng.randrange(100), rng.choice(["k", "k.#", "other"])
                host.queue(name)
                host.vhost.bindings.bind(b"x", to(name), key.encode(), {"x-treecast-filter": f"n > {floor}"})
        for n in (0, 50, 99, 100):
            host.publish(b'{"n": %d}' % n, exchange="x", key="k")
            for name, (floor, key) in wanted.items():
                assert host.drained(name) == ([b'{"n": %d}' % n] if n > floor and key != "other" else []), (
                    round
                )
    exchange = host.vhost.exchanges[b"x"]
    assert len(exchange._kept) > 0
    for name, (floor, key) in wanted.items():
        asked = {"x-treecast-filter": f"n > {floor}"}
        host.vhost.bindings.unbind(b"x", to(name), key.encode(), asked)
    assert len(exchange._kept) == 0  # no diagram outlives its filters
