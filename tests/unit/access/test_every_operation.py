"""Every method of AMQP, packet of MQTT and management call has its row of rights, as every API of Kafka
(`kafka/test_rights.py`) and call of the control address (`daemon/test_control_access.py`); so have calls
of the coordinator and of the authority of a secured cluster. A new one without a row fails here."""

from __future__ import annotations

import inspect
from typing import get_args
from unittest import mock

import pytest
from pamqp import base, commands
from tests.unit.amqp.management_site import Site
from tests.unit.amqp.test_rights import OPERATIONS

from treecast.middleware.api import trust_calls
from treecast.middleware.api.admission import Refused
from treecast.middleware.api.call_auth import CLUSTER_KEY, PROTOCOL, PROTOCOL_KEY
from treecast.middleware.api.certificates import ADMINISTRATOR, HOST, Identity
from treecast.middleware.api.coordinator_client import SERVICE
from treecast.middleware.api.rpc import Method, methods
from treecast.middleware.control.trust.authority import Authority
from treecast.middleware.daemon.certified import CertifiedAdmission
from treecast.middleware.daemon.http import PATHS
from treecast.middleware.model.errors import TreecastError
from treecast.shims.amqp import session_table as amqp
from treecast.shims.amqp.management import CALLS
from treecast.shims.amqp.management_needed import ANY, OWN, PERMISSIONS, TAGS
from treecast.shims.amqp.management_needed import NEEDED as MANAGED
from treecast.shims.amqp.needed import NEEDED as METHODS
from treecast.shims.mqtt import session_table as mqtt
from treecast.shims.mqtt.rights import NEEDED as PACKETS

# Methods that a channel handles outside of its table
BESIDE = {
    commands.Channel.Open.index,
    commands.Channel.Close.index,
    commands.Channel.CloseOk.index,
    commands.Basic.Publish.index,
}


def test_every_method_of_amqp_has_a_row() -> None:
    handled = {method for methods in amqp.CHANNEL.values() for method in methods}
    handled |= {method for methods in amqp.CONNECTION.values() for method in methods}
    assert set(METHODS) == handled | BESIDE | amqp.ON_CONNECTION


def test_every_method_with_rights_is_tried_without_them() -> None:
    """`amqp/test_rights.py` tries each operation with each right missing; reading is reviewed there, too."""
    tried = {frame.index for frame, _ in OPERATIONS.values() if isinstance(frame, base.Frame)}
    elsewhere = {
        commands.Basic.Publish.index,  # as bytes
        commands.Basic.Consume.index,
        commands.Connection.Open.index,
        commands.Exchange.Unbind.index,  # as bind
    }
    assert {method for method, rights in METHODS.items() if rights} == tried | elsewhere


def test_every_packet_of_mqtt_has_a_row() -> None:
    assert set(PACKETS) == {packet for packets in mqtt.ALLOWED.values() for packet in packets}


# --- management calls


def test_every_management_call_has_a_row() -> None:
    assert set(MANAGED) == {name for _, _, name in CALLS}
    assert set(MANAGED.values()) == {ANY, PERMISSIONS, OWN, *TAGS}
    looks = {name for method, _, name in CALLS if method == "GET"}
    changes = {name for method, _, name in CALLS if method != "GET"}
    assert not looks & changes
    assert {name for name in changes if MANAGED[name] == ANY} == set()


def path_of(path: str) -> str:
    """Returns a path with something for each parameter."""
    known = {":vhost": "%2F", ":queue": "q", ":exchange": "amq.topic", ":user": "guest", ":kind": "q"}
    return "/".join([known.get(part, "x") if part.startswith(":") else part for part in path.split("/")])


@pytest.mark.parametrize("tag", ["management", *sorted(TAGS)])
def test_every_management_call_asks_for_its_tag(tag: str) -> None:
    """A user with one tag, and all permissions in the virtual host, is refused where another is needed."""
    site = Site()
    site.user("one", tag, vhost="/")
    for method, path, name in CALLS:
        needed = MANAGED[name]
        if needed in TAGS and tag not in (needed, "administrator"):
            status, found = site.call(method, path_of(path), user="one")
            assert status == 401, (method, path, found)
            assert "Not" in found["reason"], (method, path)


def test_every_change_asks_for_permissions_or_a_tag() -> None:
    """A user with a tag and no permission changes nothing, and reads no message."""
    site = Site()
    site.user("one", "management")
    site.put("queues/%2F/q")
    for method, path, name in CALLS:
        if MANAGED[name] == PERMISSIONS:
            status, found = site.call(method, path_of(path), user="one")
            assert status == 401, (method, path, found)
            assert "authorised" in found["error"], (method, path)


def test_pages_of_the_admin_address_look_only() -> None:
    """A page that changes something needs a right of its own: `/api` is the one such, with the rows above."""
    assert PATHS == ("/", "/metrics", "/status", "/healthz", "/readyz")


# --- calls between hosts


@pytest.mark.parametrize("method", list(methods(SERVICE)), ids=lambda one: one.name)
def test_every_call_of_the_coordinator_is_a_hosts(method: Method) -> None:
    """In a secured cluster: nobody else's, under no other host's name, and of no other cluster."""
    found: dict[str, Identity] = {
        "host": Identity("c1", HOST, "h1", 1),
        "other": Identity("c1", HOST, "h2", 2),
        "administrator": Identity("c1", ADMINISTRATOR, "root", 3),
    }
    admission = CertifiedAdmission("c1", found.get, lambda _: "h1")
    request = method.request()
    fields = request.DESCRIPTOR.fields_by_name
    named = "session" in fields or "name" in fields
    if "session" in fields:
        request.session.host_id = 7
    elif "name" in fields:
        request.name = "h1"
    body, own = request.SerializeToString(), {PROTOCOL_KEY: PROTOCOL, CLUSTER_KEY: "c1"}

    def admitted(peer: str, cluster: str = "c1") -> bool:
        try:
            admission.admit(own | {CLUSTER_KEY: cluster}, method.path, body, 0.0, peer)
        except Refused:
            return False
        return True

    assert admitted("host")
    assert not admitted("nobody")
    assert not admitted("administrator")
    assert not admitted("host", "c2")
    if "session" in fields or method.request.DESCRIPTOR.name in ("AttachRequest", "HandInRequest"):
        assert named
        assert not admitted("other")


def test_every_call_of_the_authority_has_its_callers() -> None:
    asked = set(get_args(trust_calls.Request))
    assert set(trust_calls.CALLERS) == asked
    known = {trust_calls.ANYBODY, trust_calls.HOLDER, HOST, ADMINISTRATOR}
    assert set(trust_calls.CALLERS.values()) == known


@pytest.mark.parametrize("request_", trust_calls.CALLERS, ids=lambda one: one.__name__)
async def test_every_call_of_the_authority_is_refused_to_others(request_: type) -> None:
    """By each certificate but that of the row; without one, all but the first two."""
    authority = mock.create_autospec(Authority, instance=True)
    authority.holds.return_value = True
    needed = trust_calls.CALLERS[request_]
    fields = {"name": "x", "seconds": 1.0, "request": b"", "token": b"", "secret": b"", "generation": 0}
    given = {name: fields[name] for name in inspect.signature(request_).parameters if name in fields}
    made = request_(**given)
    for role in (None, HOST, ADMINISTRATOR):
        if needed in (trust_calls.ANYBODY, trust_calls.HOLDER, role):
            continue
        caller = None if role is None else Identity("c1", role, "x", 1)
        with pytest.raises(TreecastError, match="this call"):
            await asked(authority, made, caller)


async def asked(authority: Authority, made: trust_calls.Request, caller: Identity | None) -> object:
    """Makes a call of the class's own code."""
    if isinstance(made, trust_calls.Follow):
        return await anext(Authority.follow(authority, made, caller))
    return Authority.answer(authority, made, caller)
