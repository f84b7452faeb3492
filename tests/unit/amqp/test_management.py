"""The management calls, from request to response, over a host with clients."""

from __future__ import annotations

import base64

import pytest
from pamqp import commands
from tests.unit.amqp.face import Basic, Client, Connection, describe
from tests.unit.amqp.management_site import Site, publish

from treecast.middleware.broker.queues import Destination
from treecast.shims.amqp.management import CALLS
from treecast.shims.amqp.management_call import Request, columns_of
from treecast.shims.amqp.users import Permission


@pytest.fixture
def site() -> Site:
    return Site()


# --- users


def test_a_caller_has_to_be_known_and_tagged(site: Site) -> None:
    site.user("plain", vhost="/")
    refused = {"error": "not_authorized", "reason": "Login failed"}
    assert site.call("GET", "overview", user="nobody") == (401, refused)
    assert site.call("GET", "overview", user="plain")[1]["reason"] == "Not management user"
    for authorization in ("", "Basic", "Basic ???", "Bearer x", "Basic Z3Vlc3Q="):
        found = site.management.answer(Request("GET", "/api/overview", {}, authorization), 0.0)
        assert found.status == 401
        assert dict(found.headers)["WWW-Authenticate"].startswith("Basic ")
    given = base64.b64encode(b"guest:guest").decode()
    remote = Request("GET", "/api/overview", {}, f"Basic {given}", local=False)
    assert site.management.answer(remote, 0.0).status == 401


@pytest.mark.parametrize(
    ("tag", "may"),
    [
        ("management", {"queues"}),
        ("policymaker", {"queues", "policies"}),
        ("monitoring", {"queues", "nodes"}),
        ("administrator", {"queues", "policies", "nodes", "users", "definitions"}),
    ],
)
def test_what_a_tag_permits(site: Site, tag: str, may: set[str]) -> None:
    site.user("u", tag, vhost="/")
    paths = ("queues", "policies", "nodes", "users", "definitions")
    assert {path for path in paths if site.call("GET", path, user="u")[0] == 200} == may


def test_who_may_not_see_all_sees_its_own_virtual_hosts_and_connections(site: Site) -> None:
    site.user("u", "management", vhost="/")
    site.put("vhosts/other")
    site.put("queues/other/q", durable=True)
    site.put("queues/%2F/r", durable=True)
    site.client()
    assert [one["name"] for one in site.get("vhosts", "u")] == ["/"]
    assert [one["name"] for one in site.get("queues", "u")] == ["r"]
    assert site.get("connections", "u") == []
    assert site.call("GET", "queues/other/q", user="u")[0] == 401
    assert site.call("DELETE", "connections/127.0.0.1%3A5000%20-%3E%20127.0.0.1%3A5672", user="u")[0] == 401


def test_permissions_count_here_as_well(site: Site) -> None:
    site.user("u", "management")
    site.users.permit("u", "/", Permission("^mine", "^mine", "^mine"))
    assert site.call("PUT", "queues/%2F/mine", {}, "u")[0] == 201
    status, body = site.call("PUT", "queues/%2F/yours", {}, "u")
    assert status == 401
    assert body["reason"].startswith("ACCESS_REFUSED - configure access to queue 'yours'")
    site.put("queues/%2F/yours")
    get = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert site.call("POST", "queues/%2F/yours/get", get, "u")[0] == 401
    assert site.call("DELETE", "queues/%2F/yours/contents", None, "u")[0] == 401
    message = {"routing_key": "mine", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert site.call("POST", "exchanges/%2F/amq.default/publish", message, "u")[0] == 401


# --- definitions one by one


def test_exchanges_queues_and_bindings_are_made_shown_and_deleted(site: Site) -> None:
    assert site.call("PUT", "exchanges/%2F/x", {"type": "topic"})[0] == 201
    assert site.call("PUT", "exchanges/%2F/x", {"type": "topic"})[0] == 204
    assert site.call("PUT", "exchanges/%2F/x", {"type": "fanout"})[0] == 400
    assert site.call("PUT", "queues/%2F/q", {"arguments": {"x-queue-type": "quorum"}})[0] == 201
    status, body = site.call("PUT", "queues/%2F/q", {"durable": False})
    assert status == 400
    assert body["reason"].startswith("inequivalent arg")
    bind = {"routing_key": "a.#", "arguments": {}}
    assert site.call("POST", "bindings/%2F/e/x/q/q", bind)[0] == 201
    assert site.call("POST", "bindings/%2F/e/x/q/q", {"routing_key": "", "arguments": {"n": 1}})[0] == 201
    found = site.get("exchanges/%2F/x/bindings/source")
    assert [(one["routing_key"], one["destination"]) for one in found] == [("a.#", "q"), ("", "q")]
    assert site.get("queues/%2F/q/bindings")[0]["source"] == ""
    queue = site.get("queues/%2F/q")
    assert (queue["type"], queue["state"], queue["leader"]) == ("quorum", "running", "treecast@here")
    keys = [one["properties_key"] for one in found]
    assert keys[0] == "a.%23"
    assert (
        site.get("bindings/%2F/e/x/q/q/a.%2523")["routing_key"] == "a.#"
    )  # escaped twice, as rabbitmqadmin does
    assert site.call("DELETE", "bindings/%2F/e/x/q/q/a.%23")[0] == 204
    assert site.call("DELETE", f"bindings/%2F/e/x/q/q/{keys[1]}")[0] == 204
    assert site.get("bindings/%2F/e/x/q/q") == []
    assert site.call("DELETE", "exchanges/%2F/x")[0] == 204
    assert site.call("DELETE", "queues/%2F/q", query={"if-empty": "true"})[0] == 204
    assert site.call("GET", "queues/%2F/q")[0] == 404


def test_policies_are_set_shown_and_deleted(site: Site) -> None:
    site.put("queues/%2F/q")
    site.put("policies/%2F/p", pattern="^q", definition={"max-length": 5}, priority=1)
    site.put("operator-policies/%2F/o", pattern="^q", definition={"max-length": 3, "message-ttl": 9})
    queue = site.get("queues/%2F/q")
    assert (queue["policy"], queue["operator_policy"]) == ("p", "o")
    assert queue["effective_policy_definition"] == {"max-length": 3, "message-ttl": 9}
    assert site.get("policies/%2F/p") == {
        "vhost": "/",
        "name": "p",
        "pattern": "^q",
        "definition": {"max-length": 5},
        "priority": 1,
        "apply-to": "all",
    }
    status, body = site.call("PUT", "policies/%2F/bad", {"pattern": "(", "definition": {"max-length": 1}})
    assert (status, body["error"]) == (400, "bad_request")
    assert site.call("DELETE", "policies/%2F/p")[0] == 204
    assert site.call("DELETE", "policies/%2F/p")[0] == 404
    assert site.get("operator-policies")[0]["apply-to"] == "queues"


def test_users_and_permissions_are_put_and_used(site: Site) -> None:
    site.put("users/new", password="new", tags="management,monitoring")
    site.put("vhosts/v", description="V", tags="a,b")
    site.put("permissions/v/new", configure="", write=".*", read="")
    site.put("topic-permissions/v/new", exchange="amq.topic", write="^a", read="")
    assert site.get("whoami", "new") == {
        "name": "new",
        "tags": ["management", "monitoring"],
        "is_internal_user": True,
    }
    assert site.get("users/new/permissions")[0]["write"] == ".*"
    assert site.get("permissions/v/new")["vhost"] == "v"
    assert site.get("topic-permissions/v/new")[0]["exchange"] == "amq.topic"
    assert site.get("vhosts/v")["tags"] == ["a", "b"]
    assert {one["user"] for one in site.get("vhosts/v/permissions")} == {"guest", "new"}
    assert site.call("PUT", "permissions/v/new", {"configure": "(", "write": "", "read": ""})[0] == 400
    assert site.call("PUT", "permissions/gone/new", {"configure": "", "write": "", "read": ""})[0] == 400
    assert site.call("PUT", "users/x", {"tags": ""})[0] == 400
    assert site.call("DELETE", "permissions/v/new")[0] == 204
    assert site.call("DELETE", "topic-permissions/v/new")[0] == 204
    assert site.call("POST", "users/bulk-delete", {"users": ["new"]})[0] == 204
    assert site.call("GET", "users/new")[0] == 404


def test_the_default_queue_type_of_a_virtual_host(site: Site) -> None:
    site.put("vhosts/v", default_queue_type="quorum")
    assert site.get("vhosts/v")["default_queue_type"] == "quorum"
    site.put("queues/v/q")
    site.put("queues/v/c", arguments={"x-queue-type": "classic"})
    assert {one["name"]: one["type"] for one in site.get("queues/v")} == {"q": "quorum", "c": "classic"}
    site.put("vhosts/v", description="the type stays")
    site.put("queues/v/r")
    assert site.get("queues/v/r")["type"] == "quorum"
    assert site.call("PUT", "vhosts/v", {"default_queue_type": "odd"})[0] == 400
    assert site.call("PUT", "vhosts/w", {"default_queue_type": 5})[0] == 400
    assert site.call("GET", "vhosts/w")[0] == 404
    site.put("vhosts/v", default_queue_type="undefined")
    assert site.get("vhosts/v")["default_queue_type"] == "classic"
    site.put("queues/v/s")
    assert site.get("queues/v/s")["type"] == "classic"


@pytest.mark.parametrize(
    "value",
    ["9223372036854775808", "-9223372036854775809", "1e999", "NaN", "Infinity", '"\\ud800"', "[" * 5000],
)
def test_what_no_field_of_amqp_can_have_is_refused_and_changes_nothing(site: Site, value: str) -> None:
    given = base64.b64encode(b"guest:guest").decode()
    for path in ("queues/%2F/q", "exchanges/%2F/e"):
        body = f'{{"type": "topic", "arguments": {{"x-mine": {value}}}}}'.encode()
        request = Request("PUT", f"/api/{path}", {}, f"Basic {given}", "", body)
        response = site.management.answer(request, site.memory.now)
        assert response.status == 400
    assert not site.memory.vhost.queues
    assert b"e" not in site.memory.vhost.exchanges


LONG = "n" * 256


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"exchanges/%2F/{LONG}", {"type": "fanout"}),
        (f"queues/%2F/{LONG}", {}),
        (f"queues/%2F/{'ü' * 128}", {}),
        (f"vhosts/{LONG}", {}),
        (f"users/{LONG}", {"password": "p", "tags": ""}),
        ("queues/%2F/r", {"arguments": {"x-dead-letter-exchange": "e", "x-dead-letter-routing-key": LONG}}),
        ("queues/%2F/r", {"arguments": {"x-dead-letter-exchange": LONG}}),
        ("policies/%2F/p", {"pattern": ".*", "definition": {"dead-letter-routing-key": LONG}}),
    ],
)
def test_names_that_amqp_cannot_carry_are_refused(site: Site, path: str, body: dict[str, object]) -> None:
    before = site.get("definitions")
    status, found = site.call("PUT", path, body)
    assert (status, found["error"]) == (400, "bad_request")
    assert site.get("definitions") == before


def test_a_binding_key_that_amqp_cannot_carry_is_refused_and_a_definition_is_left_out(site: Site) -> None:
    site.put("queues/%2F/q")
    status, _ = site.call("POST", "bindings/%2F/e/amq.topic/q/q", {"routing_key": LONG})
    assert status == 400
    document = {
        "vhosts": [{"name": LONG}],
        "queues": [{"name": LONG, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
        "exchanges": [{"name": LONG, "vhost": "/", "type": "topic"}],
    }
    status, report = site.call("POST", "definitions", document)
    assert (status, report["imported"], len(report["skipped"])) == (200, {}, 3)


def test_what_nests_deeper_than_amqps_tables_is_refused(site: Site) -> None:
    def published(depth: int) -> int:
        value: object = 1
        for _ in range(depth):
            value = {"a": value}
        return site.call(
            "POST",
            "exchanges/%2F/amq.fanout/publish",
            {
                "properties": {"headers": {"a": value}},
                "routing_key": "",
                "payload": "x",
                "payload_encoding": "string",
            },
        )[0]

    assert [published(depth) for depth in (20, 60, 61, 500)] == [200, 200, 400, 400]


def test_headers_of_a_published_message_match_as_a_clients(site: Site) -> None:
    site.put("queues/%2F/q")
    values = {"f": 0.1, "i": -5, "s": "x", "t": True, "a": [1, {"n": 1.5}], "big": 1 << 62}
    arguments = {"x-match": "all", **values}
    site.memory.vhost.bindings.bind(b"amq.headers", Destination(b"q", False), b"", arguments)
    body = {
        "routing_key": "",
        "payload": "x",
        "payload_encoding": "string",
        "properties": {"headers": values},
    }
    status, answer = site.call("POST", "exchanges/%2F/amq.headers/publish", body)
    assert (status, answer) == (200, {"routed": True})


def test_a_virtual_host_is_deleted_with_its_connections(site: Site) -> None:
    site.put("vhosts/v")
    client = Client(site.memory)
    client.log_in()
    client.got()
    client.send(Connection.TuneOk(10, 131072, 0), Connection.Open("v"), channel=0)
    client.got()
    site.clients.append(client)
    site.put("queues/v/q")
    assert site.call("DELETE", "vhosts/v")[0] == 204
    assert client.closed() == (0, 320)
    assert [one["name"] for one in site.get("vhosts")] == ["/"]
    assert site.call("DELETE", "vhosts/%2F")[0] == 400


def test_definitions_go_out_and_in_and_name_what_is_left_out(site: Site) -> None:
    site.put("queues/%2F/q")
    document = site.get("definitions")
    assert [one["name"] for one in document["queues"]] == ["q"]
    other = Site()
    document["policies"] = [{"vhost": "/", "name": "ha", "pattern": "", "definition": {"ha-mode": "all"}}]
    status, report = other.call("POST", "definitions", document)
    assert status == 200
    assert report["imported"]["queues"] == 1
    assert report["skipped"] == [
        "policies ha: ha-mode is not known here",
        "policies / ha: nothing of it is known here",
    ]
    assert other.call("POST", "definitions", {"queues": 1})[0] == 400
    assert other.call("POST", "definitions/%2F", site.get("definitions/%2F"))[0] == 200


# --- statistics


def test_connections_channels_and_consumers_are_shown(site: Site) -> None:
    client = site.client(1, 2)
    client.declare()
    client.publish("q", b"1", b"2", b"3")
    client.send(
        Basic.Qos(prefetch_count=2), Basic.Consume(queue="q", consumer_tag="c", arguments={"x-priority": 3})
    )
    client.got()
    client.ask(commands.Confirm.Select(), commands.Confirm.SelectOk, channel=2)
    (connection,) = site.get("connections")
    assert connection["name"] == "127.0.0.1:5000 -> 127.0.0.1:5672"
    assert (connection["channels"], connection["state"], connection["user"]) == (2, "running", "guest")
    assert connection["client_properties"]["capabilities"]["connection.blocked"]
    one, two = site.get("channels")
    assert (one["messages_unacknowledged"], one["prefetch_count"], one["consumer_count"]) == (2, 2, 1)
    assert (two["confirm"], two["name"]) == (True, f"{connection['name']} (2)")
    (consumer,) = site.get("consumers/%2F")
    assert (consumer["consumer_tag"], consumer["prefetch_count"], consumer["ack_required"]) == ("c", 2, True)
    assert consumer["arguments"] == {"x-priority": 3}
    (queue,) = site.get("queues")
    assert (queue["messages"], queue["messages_ready"], queue["messages_unacknowledged"]) == (3, 1, 2)
    assert (queue["message_stats"]["publish"], queue["message_stats"]["deliver"]) == (3, 2)
    assert site.get("queues/%2F/q")["consumer_details"] == [consumer]
    overview = site.get("overview")
    assert overview["object_totals"] == {
        "connections": 1,
        "channels": 2,
        "consumers": 1,
        "exchanges": 7,
        "queues": 1,
    }
    assert overview["queue_totals"]["messages"] == 3
    assert site.get("nodes")[0]["uptime"] == 61500


def test_rates_are_of_the_time_between_two_looks(site: Site) -> None:
    site.put("queues/%2F/q")
    site.get("queues")
    for _ in range(10):
        publish(site, "x")
    site.memory.wait(5)
    queue = site.get("queues")[0]
    assert queue["message_stats"]["publish_details"]["rate"] == pytest.approx(2.0)
    assert queue["messages_details"]["rate"] == pytest.approx(2.0)
    site.call("DELETE", "queues/%2F/q")
    assert site.get("overview")["message_stats"]["publish"] == 10  # a deleted queue's counts are kept


def test_a_connection_is_closed_and_told_why(site: Site) -> None:
    client = site.client()
    (connection,) = site.get("connections")
    path = f"connections/{connection['name'].replace(' ', '%20').replace('>', '%3E').replace(':', '%3A')}"
    assert site.get(path)["name"] == connection["name"]
    assert site.get(f"{path}/channels")[0]["number"] == 1
    assert site.call("DELETE", path)[0] == 204
    (close,) = client.got()
    assert isinstance(close, Connection.Close), describe(close)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - Closed via management plugin")


def test_lists_are_sorted_cut_to_columns_and_paged(site: Site) -> None:
    for name in ("b", "a", "ca", "d"):
        site.put(f"queues/%2F/{name}")
    publish(site, "x", key="ca")
    found = site.get("queues", sort="messages", sort_reverse="true", columns="name,messages")
    assert found[0] == {"name": "ca", "messages": 1}
    page = site.get("queues", page="2", page_size="3", sort="name", columns="name")
    assert (page["items"], page["page_count"], page["total_count"]) == ([{"name": "d"}], 2, 4)
    found = site.get("queues", page="1", name="a", columns="name")
    assert [one["name"] for one in found["items"]] == ["a", "ca"]
    found = site.get("queues", page="1", name="^a$", use_regex="true")
    assert found["filtered_count"] == 1
    found = site.get("queues", page="1", name="(a|aa)+$x", use_regex="true")
    assert found["filtered_count"] == 0
    assert site.call("GET", "queues", query={"page": "1", "name": "(", "use_regex": "true"})[0] == 400
    for bad in ({"page": "0"}, {"page": "x"}, {"page": "9"}, {"page": "1", "page_size": "501"}):
        assert site.call("GET", "queues", query=bad)[0] == 400
    assert columns_of({"a": {"b": 1, "c": 2}, "d": 3}, ["a.b", "d", "e"]) == {"a": {"b": 1}, "d": 3}


def test_health_is_told(site: Site) -> None:
    for check in ("alarms", "local-alarms", "virtual-hosts", "port-listener/5672", "protocol-listener/amqp"):
        assert site.get(f"health/checks/{check}")["status"] == "ok"
    assert site.get("aliveness-test/%2F")["status"] == "ok"
    assert site.call("GET", "health/checks/port-listener/1")[0] == 503
    assert site.call("GET", "health/checks/protocol-listener/stomp")[0] == 503
    site.memory.amqp.alarm = "low on memory"
    assert site.call("GET", "health/checks/alarms")[0] == 503
    assert site.get("nodes")[0]["mem_alarm"]


# --- bad calls


def test_paths_methods_and_bodies_that_are_not_known(site: Site) -> None:
    assert site.call("GET", "none") == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert site.call("DELETE", "overview")[0] == 405
    assert site.call("GET", "queues/none")[0] == 404
    given = base64.b64encode(b"guest:guest").decode()
    for body in (b"{", b"[]", b"\xff"):
        request = Request("PUT", "/api/queues/%2F/q", {}, f"Basic {given}", "", body)
        assert site.management.answer(request, 0.0).status == 400
    status, found = site.call("POST", "queues/%2F/q/get", {"count": 1})
    assert status == 404
    site.put("queues/%2F/q")
    status, found = site.call("POST", "queues/%2F/q/get", {"count": 1})
    assert (status, found["reason"]) == (400, "[{key_missing,ackmode},{key_missing,encoding}]")


@pytest.mark.parametrize(("method", "path", "name"), CALLS)
def test_every_call_is_answered_whatever_is_there(site: Site, method: str, path: str, name: str) -> None:
    """Unknown names and an empty body are answered or refused, and never cause an internal error."""
    values = {":vhost": "%2F", ":user": "guest", ":kind": "q"}
    parts = [values.get(part, "nothing" if part.startswith(":") else part) for part in path.split("/")]
    status, _ = site.call(method, "/".join(parts), {})
    assert status in (200, 201, 204, 400, 404, 503)
