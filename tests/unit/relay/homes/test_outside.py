"""Groups and transactional ids that a system outside the cluster owns."""

from __future__ import annotations

import msgspec
import pytest

from treecast.middleware.api.entries import (
    Change,
    DefinitionEntry,
    HomeKind,
    HostEntry,
    Kind,
    Position,
    Presence,
    Update,
)
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.relay.homes.outside import PREFIX, Owner, OwnersElsewhere
from treecast.middleware.relay.view import ClusterView

GROUP, OTHER = HomeName(HomeKind.GROUP, "g.one"), HomeName(HomeKind.GROUP, "mine")
TRANSACTION = HomeName(HomeKind.TRANSACTION, "t.one")
OWNER = Owner(3, "cluster", ("g.*",), ("t.*",), ("orders*",), ("orders.private",))


def host(number: int) -> HostEntry:
    return HostEntry(number, f"h{number}", "i", "127.0.0.1:1", "1", 1, Presence.ATTACHED)


class Told:
    """A view, told of hosts and definitions."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self._revision = 0

    def tell(self, kind: Kind, key: str, entry: HostEntry | DefinitionEntry | None) -> None:
        self._revision += 1
        position = Position("history", self._revision)
        self.view.apply(Update(False, position, (Change(kind, key, entry),)))

    def define(self, value: bytes | None) -> None:
        key = f"{PREFIX}cluster"
        entry = None if value is None else DefinitionEntry(key, 3, value)
        self.tell(Kind.DEFINITION, key, entry)


@pytest.mark.parametrize("early", [True, False])
def test_ids_are_the_owners_by_their_names(early: bool) -> None:
    told = Told()
    told.tell(Kind.HOST, "h3", host(3))
    if early:
        told.define(msgspec.json.encode(OWNER))
    elsewhere = OwnersElsewhere(told.view)
    told.define(msgspec.json.encode(OWNER))
    for name in (GROUP, TRANSACTION):
        found = elsewhere.home(name)
        assert found is not None
        assert found.host_id == 3
    assert elsewhere.home(OTHER) is None
    assert elsewhere.home(HomeName(HomeKind.TRANSACTION, "g.one")) is None
    told.define(None)
    assert elsewhere.home(GROUP) is None


def test_an_owner_whose_agent_has_left_the_cluster_owns_nothing() -> None:
    told = Told()
    told.define(msgspec.json.encode(OWNER))
    elsewhere = OwnersElsewhere(told.view)
    assert elsewhere.home(GROUP) is None
    told.tell(Kind.HOST, "h3", host(3))
    assert elsewhere.home(GROUP) is not None


@pytest.mark.parametrize("value", [b"", b"[]", b'{"host": "x"}', b"\xff"])
def test_a_definition_that_cannot_be_read_owns_nothing(value: bytes) -> None:
    told = Told()
    told.tell(Kind.HOST, "h3", host(3))
    elsewhere = OwnersElsewhere(told.view)
    told.define(value)
    assert elsewhere.home(GROUP) is None


def test_topics_are_followed_by_their_names() -> None:
    assert OWNER.follows("orders.eu")
    assert not OWNER.follows("orders.private")
    assert not OWNER.follows("other")
