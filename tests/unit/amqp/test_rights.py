"""Rights of users: alike over channels and management calls, and until they are taken away."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, commands
from tests.unit.amqp.face import Basic, Channel, Client, Connection, Queue, publish
from tests.unit.amqp.management_site import Site

from treecast.middleware.broker.queues import Destination
from treecast.shims.amqp.users import Permission, TopicPermission, User, hashed

Exchange = commands.Exchange
NOTHING = Permission("", "", "")
MESSAGE = {"payload": "x", "payload_encoding": "string", "properties": {}}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
DLX, AE = "x-dead-letter-exchange", "alternate-exchange"


def with_definitions() -> Site:
    """Returns a host with exchanges `t` (topic) and `f`, and the queue `q`, each bound, and a user `u`."""
    site = Site()
    site.put("exchanges/%2F/t", type="topic")
    site.put("exchanges/%2F/f", type="fanout")
    for queue in ("q", "other"):
        site.put(f"queues/%2F/{queue}")
    vhost = site.memory.vhost
    for exchange in (b"t", b"f"):
        vhost.bindings.bind(exchange, Destination(b"q", False), b"a.b", {})
    site.user("u", "management")
    return site


@pytest.fixture
def site() -> Site:
    return with_definitions()


def logged_in(site: Site, user: str = "u") -> Client:
    client = Client(site.memory)
    site.clients.append(client)
    client.log_in(user, user)
    (tune,) = client.got()
    assert isinstance(tune, Connection.Tune)
    client.send(Connection.TuneOk(tune.channel_max, 131072, 0), Connection.Open("/"), channel=0)
    client.got()
    client.ask(Channel.Open(), Channel.OpenOk)
    return client


# --- both ways in

# An operation over a channel, and the management call that does the same.
OPERATIONS: dict[str, tuple[base.Frame | bytes, tuple[str, str, object]]] = {
    "declare an exchange": (
        Exchange.Declare(exchange="n", exchange_type="fanout", durable=True),
        ("PUT", "exchanges/%2F/n", {"type": "fanout"}),
    ),
    "declare an exchange again": (
        Exchange.Declare(exchange="f", exchange_type="fanout", durable=True),
        ("PUT", "exchanges/%2F/f", {"type": "fanout"}),
    ),
    "an alternate exchange": (
        Exchange.Declare(exchange="n", exchange_type="fanout", durable=True, arguments={AE: "f"}),
        ("PUT", "exchanges/%2F/n", {"type": "fanout", "arguments": {AE: "f"}}),
    ),
    "delete an exchange": (Exchange.Delete(exchange="f"), ("DELETE", "exchanges/%2F/f", None)),
    "declare a queue": (
        Queue.Declare(queue="n", durable=True),
        ("PUT", "queues/%2F/n", {}),
    ),
    "a dead letter exchange": (
        Queue.Declare(queue="n", durable=True, arguments={DLX: "f"}),
        ("PUT", "queues/%2F/n", {"arguments": {DLX: "f"}}),
    ),
    "dead letters to queues": (
        Queue.Declare(queue="n", durable=True, arguments={DLX: ""}),
        ("PUT", "queues/%2F/n", {"arguments": {DLX: ""}}),
    ),
    "delete a queue": (Queue.Delete(queue="q"), ("DELETE", "queues/%2F/q", None)),
    "purge": (Queue.Purge(queue="q"), ("DELETE", "queues/%2F/q/contents", None)),
    "get": (Basic.Get(queue="q"), ("POST", "queues/%2F/q/get", GET)),
    "bind": (
        Queue.Bind(queue="q", exchange="f", routing_key="a.b"),
        ("POST", "bindings/%2F/e/f/q/q", {"routing_key": "a.b"}),
    ),
    "bind to topics": (
        Queue.Bind(queue="other", exchange="t", routing_key="a.b"),
        ("POST", "bindings/%2F/e/t/q/other", {"routing_key": "a.b"}),
    ),
    "unbind from topics": (
        Queue.Unbind(queue="q", exchange="t", routing_key="a.b"),
        ("DELETE", "bindings/%2F/e/t/q/q/a.b", None),
    ),
    "bind exchanges": (
        Exchange.Bind(destination="f", source="t", routing_key="a.b"),
        ("POST", "bindings/%2F/e/t/e/f", {"routing_key": "a.b"}),
    ),
    "publish": (
        publish("a.b", b"x", "f"),
        ("POST", "exchanges/%2F/f/publish", {"routing_key": "a.b", **MESSAGE}),
    ),
    "publish a topic": (
        publish("a.b", b"x", "t"),
        ("POST", "exchanges/%2F/t/publish", {"routing_key": "a.b", **MESSAGE}),
    ),
    "publish to a queue": (
        publish("q", b"x"),
        ("POST", "exchanges/%2F/amq.default/publish", {"routing_key": "q", **MESSAGE}),
    ),
    "publish to further topics": (
        publish("a.b", b"x", "t", headers={"CC": ["b.c"]}),
        (
            "POST",
            "exchanges/%2F/t/publish",
            {"routing_key": "a.b", **MESSAGE, "properties": {"headers": {"CC": ["b.c"]}}},
        ),
    ),
    "publish as another": (
        publish("a.b", b"x", "f", user_id="ben"),
        (
            "POST",
            "exchanges/%2F/f/publish",
            {"routing_key": "a.b", **MESSAGE, "properties": {"user_id": "ben"}},
        ),
    ),
}


def over_amqp(site: Site, operation: base.Frame | bytes, client: Client | None = None) -> bool:
    """Returns whether the operation is permitted. Leaves a channel open."""
    client = client or logged_in(site)
    if isinstance(operation, bytes):
        client.send_bytes(operation)
    else:
        client.send(operation)
    client.send(Queue.Declare(queue="q", passive=True))
    closes = [one for one in client.got() if isinstance(one, Channel.Close)]
    if closes:
        client.send(Channel.CloseOk())
        client.ask(Channel.Open(), Channel.OpenOk)
    assert all(one.reply_code in (403, 404, 406) for one in closes)
    return not any(
        one.reply_code == 403 or (one.reply_code == 406 and "user_id" in one.reply_text) for one in closes
    )


def over_http(site: Site, operation: tuple[str, str, object]) -> bool:
    status, found = site.call(*operation, user="u")
    assert status in (200, 201, 204, 400, 401), found
    return status != 401 and not (status == 400 and "user_id" in found["reason"])


patterns = st.sampled_from(
    ["", ".*", "^n", "^q$", "^other$", "^f$", "^t$", "^(t|q)$", "^amq", "^(n|f|other)$"]
)
keys = st.sampled_from(["", "^a", "^b", ".*"])


@pytest.mark.parametrize("name", OPERATIONS)
@given(configure=patterns, write=patterns, read=patterns, topics=st.none() | st.tuples(keys, keys))
def test_both_ways_in_decide_alike(
    name: str, configure: str, write: str, read: str, topics: tuple[str, str] | None
) -> None:
    found = []
    for way in (0, 1):
        site = with_definitions()
        site.users.permit("u", "/", Permission(configure, write, read))
        if topics is not None:
            site.users.permit_topics("u", "/", "t", TopicPermission(*topics))
        operation = OPERATIONS[name]
        found.append(over_http(site, operation[1]) if way else over_amqp(site, operation[0]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "configure", "write", "read", "topics"),
    [
        ("declare an exchange", "^n$", "", "", None),
        ("declare an exchange again", "^f$", "", "", None),
        ("an alternate exchange", "^n$", "^f$", "^n$", None),
        ("delete an exchange", "^f$", "", "", None),
        ("declare a queue", "^n$", "", "", None),
        ("a dead letter exchange", "^n$", "^f$", "^n$", None),
        ("dead letters to queues", "^n$", r"^amq\.default$", "^n$", None),
        ("delete a queue", "^q$", "", "", None),
        ("purge", "", "", "^q$", None),
        ("get", "", "", "^q$", None),
        ("bind", "", "^q$", "^f$", None),
        ("bind to topics", "", "^other$", "^t$", TopicPermission("", r"^a\.b$")),
        ("unbind from topics", "", "^q$", "^t$", TopicPermission("", r"^a\.b$")),
        ("bind exchanges", "", "^f$", "^t$", TopicPermission("", r"^a\.b$")),
        ("publish", "", "^f$", "", None),
        ("publish a topic", "", "^t$", "", TopicPermission(r"^a\.b$", "")),
        ("publish to a queue", "", r"^amq\.default$", "", None),
        ("publish to further topics", "", "^t$", "", TopicPermission(r"^(a\.b|b\.c)$", "")),
    ],
)
def test_each_operation_needs_all_that_it_needs(
    name: str, configure: str, write: str, read: str, topics: TopicPermission | None
) -> None:
    """With exactly these rights it is done; without any one of them it is refused, either way."""
    given = {"configure": configure, "write": write, "read": read}
    keys = {"write": topics.write, "read": topics.read} if topics is not None else {}
    whole = [None, *[(one, "") for one in given if given[one]], *[(one, "key") for one in keys if keys[one]]]
    for way, lacking in itertools.product((over_amqp, over_http), whole):
        site = with_definitions()
        right, kind = lacking or ("", "")
        left = {one: "" if (one, kind) == (right, "") else text for one, text in given.items()}
        site.users.permit("u", "/", Permission(**left))
        if topics is not None:
            found = {one: "" if (one, kind) == (right, "key") else text for one, text in keys.items()}
            site.users.permit_topics("u", "/", "t", TopicPermission(**found))
        operation = OPERATIONS[name][0 if way is over_amqp else 1]
        assert way(site, operation) is (lacking is None), (way, lacking)


@pytest.mark.parametrize("tags", [("management",), ("management", "impersonator")])
def test_an_impersonator_may_name_another_sender(site: Site, tags: tuple[str, ...]) -> None:
    site.user("u", *tags, vhost="/")
    amqp, http = OPERATIONS["publish as another"]
    assert over_amqp(site, amqp) is over_http(site, http) is ("impersonator" in tags)


def test_a_queue_named_by_the_server_is_decided_by_that_name(site: Site) -> None:
    site.users.permit("u", "/", Permission(r"^amq\.gen", "", ""))
    client = logged_in(site)
    found = client.ask(Queue.Declare(exclusive=True), Queue.DeclareOk)
    assert found.queue.startswith("amq.gen-")
    site.users.permit("u", "/", Permission(r"^amq\.default$", "", ""))
    client.send(Queue.Declare(exclusive=True))
    assert client.closed() == (1, 403)


# --- what is open


some_rights = st.tuples(patterns, patterns, patterns)
some_operation = st.sampled_from(
    ["publish", "publish a topic", "publish to a queue", "get", "declare a queue"]
)


@given(st.lists(some_rights | st.tuples(keys, keys) | some_operation, max_size=30))
def test_a_channel_that_remembers_decides_as_one_that_does_not(steps: list[object]) -> None:
    """The reference asks again for each operation, as management calls do."""
    site = with_definitions()
    site.users.permit("u", "/", NOTHING)
    client = logged_in(site)
    for step in steps:
        if isinstance(step, str):
            amqp, http = OPERATIONS[step]
            assert over_amqp(site, amqp, client) == over_http(site, http)
        elif isinstance(step, tuple) and len(step) == 2:
            site.users.permit_topics("u", "/", "t", TopicPermission(*step))
        elif isinstance(step, tuple):
            site.users.permit("u", "/", Permission(*step))


def test_a_right_that_is_taken_away_is_gone_at_once(site: Site) -> None:
    site.user("u", vhost="/")
    client = logged_in(site)
    client.publish("q", b"before")
    site.users.permit("u", "/", NOTHING)
    client.publish("q", b"after")
    assert client.closed() == (1, 403)
    assert site.memory.vhost.queues[b"q"].ready == 1


def test_permissions_that_are_deleted_leave_the_connection(site: Site) -> None:
    site.user("u", vhost="/")
    client = logged_in(site)
    client.publish("q", b"before")
    assert site.call("DELETE", "permissions/%2F/u")[0] == 204
    client.session.review((), site.memory.now)
    client.publish("q", b"after")
    assert client.closed() == (1, 403)
    client.send(Channel.CloseOk())
    client.ask(Channel.Open(), Channel.OpenOk)


def test_a_right_that_is_given_counts_at_once(site: Site) -> None:
    site.user("u", vhost="/")
    client = logged_in(site)
    site.users.permit("u", "/", Permission("", "^q$", ""))
    client.publish("q", b"x")
    assert client.closed() == (1, 403)
    client.send(Channel.CloseOk())
    client.ask(Channel.Open(), Channel.OpenOk)
    site.users.permit("u", "/", Permission("", r"^amq\.default$", ""))
    client.publish("q", b"x")
    assert client.got() == []


def test_who_may_no_longer_read_gets_nothing_more(site: Site) -> None:
    site.user("u", vhost="/")
    client = logged_in(site)
    client.ask(Channel.Open(), Channel.OpenOk, 2)
    client.consume("q", channel=2)
    client.publish("q", b"1")
    assert client.bodies() == [b"1"]
    site.users.permit("u", "/", Permission(".*", ".*", "^other$"))
    client.session.review((), site.memory.now)
    assert client.closed() == (2, 403)
    assert site.memory.vhost.queues[b"q"].ready == 1  # what it had not acknowledged
    client.publish("q", b"2")
    assert client.got() == []  # its other channel goes on
    assert site.memory.vhost.queues[b"q"].ready == 2


def test_a_review_leaves_what_is_permitted(site: Site) -> None:
    site.user("u", vhost="/")
    client = logged_in(site)
    client.consume("q")
    client.consume("amq.rabbitmq.reply-to", tag="r", no_ack=True)
    site.users.permit("u", "/", Permission("", ".*", "^q$"))
    client.session.review((), site.memory.now)
    client.publish("q", b"1")
    assert client.bodies() == [b"1"]


def reviewed(site: Site) -> list[str]:
    """Has deletions noted as the face does. Returns the list of names."""
    found: list[str] = []
    site.users.watch(lambda deleted: found.append(deleted) if deleted else None)
    return found


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_user_is_sent_away(site: Site, again: bool) -> None:
    """Also if there is another one of that name before the face looks."""
    site.user("u", vhost="/")
    deleted = reviewed(site)
    client, guest = logged_in(site), logged_in(site, "guest")
    client.consume("q")
    site.call("DELETE", "users/u")
    if again:
        site.user("u", vhost="/")
    for one in (client, guest):
        one.session.review(deleted, site.memory.now)
    (close,) = client.got()
    assert isinstance(close, Connection.Close)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - user 'u' is deleted")
    guest.publish("q", b"secret")
    assert client.got() == guest.got() == []
    assert site.memory.vhost.queues[b"q"].ready == 1


def test_a_user_who_is_deleted_while_opening_is_sent_away(site: Site) -> None:
    site.user("u", vhost="/")
    client = Client(site.memory)
    client.log_in("u", "u")
    client.got()
    site.users.delete("u")
    client.session.review((), site.memory.now)
    assert client.closed() == (0, 320)


# --- users


def test_a_new_user_has_no_rights_of_an_earlier_one(site: Site) -> None:
    """Joined hosts may be left with them: one has deleted the user while the other gave it permissions."""
    site.users.permissions["ann", "/"] = Permission(".*", ".*", ".*")
    site.users.topics["ann", "/", "t"] = TopicPermission(".*", ".*")
    shown = [one["user"] for one in site.get("permissions")]
    assert "ann" not in shown
    assert "ann" not in {one["user"] for one in site.get("definitions")["permissions"]}
    site.put("users/ann", password="ann", tags="management")
    assert site.call("GET", "queues/%2F/q", user="ann")[0] == 401
    site.put("permissions/%2F/ann", configure="", write="", read=".*")
    site.put("users/ann", password="ann", tags="monitoring")  # a change takes no rights
    assert site.call("POST", "queues/%2F/q/get", GET, "ann")[0] == 200


def test_nobody_logs_in_without_a_password(site: Site) -> None:
    site.users.put(User("empty", hashed(b"", b"salt"), tags=("management",)))
    assert not site.users.secret("empty").fits(b"")


def test_who_may_not_see_all_sees_the_numbers_of_what_it_may(site: Site) -> None:
    site.put("vhosts/mine")
    site.put("queues/mine/m")
    site.users.permit("u", "mine", Permission(".*", ".*", ".*"))
    site.client(1)
    overview = site.get("overview", "u")
    objects = {"connections": 0, "channels": 0, "consumers": 0, "exchanges": 7, "queues": 1}
    assert overview["object_totals"] == objects
    assert "listeners" not in overview
    assert site.get("overview")["object_totals"]["queues"] == 3


def test_who_may_not_see_all_sees_its_own_consumers(site: Site) -> None:
    site.users.permit("u", "/", Permission(".*", ".*", ".*"))
    guest, own = site.client(1), logged_in(site)
    guest.consume("q", tag="guests")
    own.consume("q", tag="own")
    assert [one["consumer_tag"] for one in site.get("consumers", "u")] == ["own"]
    assert [one["consumer_tag"] for one in site.get("consumers")] == ["guests", "own"]
    for user, tags in (("u", ["own"]), ("guest", ["guests", "own"])):
        shown = site.get("queues/%2F/q", user)
        assert [one["consumer_tag"] for one in shown["consumer_details"]] == tags
        assert shown["consumers"] == 2
