"""Management calls that people's tools make: parts of users, limits, connections of a user, certificates."""

from __future__ import annotations

import pytest
from tests.unit.amqp.management_site import Site

from treecast.shims.amqp.management_views import NodeFacts


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_user_keeps_its_password_if_only_its_tags_are_put(site: Site) -> None:
    site.user("bob", "management")
    site.put("users/bob", tags="monitoring,policymaker")
    assert site.get("whoami", "bob")["tags"] == ["monitoring", "policymaker"]
    status, found = site.call("PUT", "users/new", {"tags": "management"})
    assert (status, found["reason"]) == (400, "[{key_missing,password}]")
    assert site.call("GET", "users/new")[0] == 404


def test_global_parameters_are_the_name_of_the_cluster(site: Site) -> None:
    site.put("global-parameters/cluster_name", value="shop", name="cluster_name")
    assert site.get("global-parameters/cluster_name")["value"] == site.get("cluster-name")["name"] == "shop"
    assert site.call("GET", "global-parameters/other")[0] == 404
    assert site.call("PUT", "global-parameters/other", {"value": 1})[0] == 400
    assert [site.call("DELETE", f"global-parameters/{name}")[0] for name in ("other", "cluster_name")] == [
        404,
        400,
    ]


def test_limits_are_refused_and_say_so(site: Site) -> None:
    for path in ("vhost-limits/%2F/max-queues", "user-limits/guest/max-connections"):
        status, found = site.call("PUT", path, {"value": 5})
        assert (status, found["error"]) == (400, "not_supported")
        assert site.call("DELETE", path)[0] == 204
    assert site.get("vhost-limits") == site.get("user-limits/guest") == []
    assert site.call("POST", "rebalance/queues")[0] == 204


def test_connections_of_a_user_are_shown_and_closed(site: Site) -> None:
    site.user("bob", "management", vhost="/")
    one, other = site.client(1), site.client(1)
    one.session.state.user = "bob"
    assert [row["user"] for row in site.get("connections/username/bob")] == ["bob"]
    assert site.get("connections/username/nobody") == []
    assert site.call("DELETE", "connections/username/guest", None, "bob")[0] == 401
    assert site.call("DELETE", "connections/username/bob")[0] == 204
    assert one.session.output.closing or one.session.state.phase != other.session.state.phase
    assert len(site.get("connections/username/guest")) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("1/days", 200),
        ("2/weeks", 503),
        ("1/year", 503),
        ("1/months", 503),
        ("0/days", 200),
        ("1/hours", 400),
        ("x/days", 400),
    ],
)
def test_certificates_that_end_soon(site: Site, path: str, status: int) -> None:
    site.facts = NodeFacts(certificates=(("amqp/ssl", 10 * 86_400.0),))
    found, body = site.call("GET", f"health/checks/certificate-expiration/{path}")
    assert found == status
    if status == 503:
        assert body["expired"] == [{"protocol": "amqp/ssl", "seconds": 864_000}]
