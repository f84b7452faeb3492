"""A second authorizer: all that a way of deciding has to say, and faces that ask it without a change."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.access import (
    AllowAll,
    Authorizer,
    Decision,
    Granted,
    Operation,
    RabbitRights,
    Resource,
    ResourceKind,
    missing,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.principal import ANONYMOUS, Principal
from treecast.middleware.model.rights import EXCHANGE, QUEUE, READ, WRITE, Need
from treecast.shims.amqp.users import Permission, User, Users

YES, NO = Decision(True, "own"), Decision(False, "foreign")


class OwnPrefix:
    """Everybody owns the names that begin with their own name and a dot."""

    version = 0

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        return YES if resource.name.startswith(f"{principal.name}.") else NO

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        return YES

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        return self.decide(principal, operation, Resource(kind, prefix))


ALICE = Principal("alice")


def test_connections_ask_it() -> None:
    granted = Granted(OwnPrefix(), ALICE)
    assert granted.may(Operation.READ, ResourceKind.TOPIC, "alice.orders")
    assert granted.may_all(Operation.READ, ResourceKind.TOPIC, "alice.orders.")
    with pytest.raises(TreecastError, match=r"^alice has no right to write topic 'bob.orders'$") as refused:
        granted.check(Operation.WRITE, ResourceKind.TOPIC, "bob.orders")
    assert refused.value.fault is Fault.FORBIDDEN_TOPIC


def test_operations_on_queues_ask_it() -> None:
    needs = [Need(WRITE, EXCHANGE, b"alice.in"), Need(READ, QUEUE, b"bob.out")]
    assert missing(OwnPrefix(), ALICE, "/", needs[:1]) is None
    assert missing(OwnPrefix(), ALICE, "/", needs) == needs[1]
    assert missing(AllowAll(), ANONYMOUS, "/", needs) is None


def test_decisions_are_kept_until_rules_change() -> None:
    """One and the same operation is decided once; `version` makes the connection ask again."""

    class Counted(OwnPrefix):
        version = 1
        asked = 0

        def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
            self.asked += 1
            return super().decide(principal, operation, resource)

    authorizer = Counted()
    granted = Granted(authorizer, ALICE)
    for _ in range(3):
        granted.may(Operation.READ, ResourceKind.TOPIC, "alice.orders")
    assert authorizer.asked == 1
    authorizer.version = 2
    granted.may(Operation.READ, ResourceKind.TOPIC, "alice.orders")
    assert authorizer.asked == 2


def test_rabbitmqs_rights_are_one_of_them() -> None:
    users = Users()
    users.put(User("alice"))
    users.permit("alice", "/", Permission("", "^in$", "^out$"))
    authorizer: Authorizer = RabbitRights(users)
    assert missing(authorizer, ALICE, "/", [Need(WRITE, EXCHANGE, b"in"), Need(READ, QUEUE, b"out")]) is None
    assert missing(authorizer, ALICE, "/", [Need(READ, QUEUE, b"in")]) == Need(READ, QUEUE, b"in")
    version = authorizer.version
    users.permit("alice", "/", Permission("", "", ""))
    assert authorizer.version > version
