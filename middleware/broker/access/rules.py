"""Rules that allow or deny, as Kafka's ACLs do: deny wins, and what no rule allows is refused.

| a rule | holds for |
| --- | --- |
| literal `orders` | the resource of that name |
| literal `*` | every resource of its kind |
| prefixed `orders.` | every resource whose name begins so |

Allowing to read, write, delete or alter allows to describe; allowing to alter configs allows to describe
them. Denying means the very operation. `Rules` finds the rules of a name by its prefixes; the tests compare
it with a scan of all rules.

Source: Apache Kafka's StandardAuthorizerData and KIP-290 (prefixed rules), KIP-679 (`decide_any`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from treecast.middleware.model.principal import ANYWHERE, Principal, PrincipalKind

from .authorizer import Decision, Operation, ResourceKind

EVERYBODY: Final = "*"  # a rule's user or address
EVERYTHING: Final = "*"  # a literal rule's name


class Pattern(enum.Enum):
    LITERAL = "literal"
    PREFIXED = "prefixed"


class Permission(enum.Enum):
    ALLOW = "allow"
    DENY = "deny"


class Rule(Struct, frozen=True, order=False):
    """One rule. `user`: a name, or EVERYBODY. `operation` None: all of them. `address`: an IP address, or
    EVERYBODY."""

    user: str
    permission: Permission
    operation: Operation | None
    kind: ResourceKind
    pattern: Pattern
    name: str
    address: str = EVERYBODY

    @property
    def words(self) -> str:
        """The rule as `treecast acl` lists it."""
        operation = self.operation.value if self.operation is not None else "all"
        where = "" if self.address == EVERYBODY else f" from {self.address}"
        resource = f"{self.kind.value} {self.pattern.value} {self.name!r}"
        return f"{self.permission.value} {self.user} {operation} on {resource}{where}"

    def is_of(self, principal: Principal) -> bool:
        """Whether the rule is about a principal at its address."""
        if principal.kind not in (PrincipalKind.USER, PrincipalKind.ANONYMOUS):
            return False
        return self.user in (EVERYBODY, principal.name) and self._is_from(principal.address)

    def _is_from(self, address: str) -> bool:
        """Whether the rule is about an address. A right from some address is kept while none is known."""
        if address == ANYWHERE and self.permission is Permission.ALLOW:
            return True
        return self.address in (EVERYBODY, address)

    def names(self, name: str) -> bool:
        """Whether the rule holds for the resource `name`."""
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (EVERYTHING, name)


# An allowed operation -> those that it implies
_IMPLIES: Final = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


def allows(rule: Rule, operation: Operation) -> bool:
    """Whether a rule that allows something allows this."""
    asked = rule.operation
    return asked is None or asked is operation or _IMPLIES.get(asked) is operation


def denies(rule: Rule, operation: Operation) -> bool:
    """Whether a rule that denies something denies this."""
    return rule.operation is None or rule.operation is operation


def _speaks(rule: Rule, operation: Operation) -> bool:
    return (allows if rule.permission is Permission.ALLOW else denies)(rule, operation)


NO_RULE: Final = Decision(False, "no rule allows it")


class Rules:
    """A set of rules, found by kind and name."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.all: Sequence[Rule] = tuple(dict.fromkeys(rules))
        self._literal: dict[tuple[ResourceKind, str], list[Rule]] = {}
        self._prefixed: dict[tuple[ResourceKind, str], list[Rule]] = {}
        self._lengths: dict[ResourceKind, list[int]] = {}
        for rule in self.all:
            table = self._prefixed if rule.pattern is Pattern.PREFIXED else self._literal
            table.setdefault((rule.kind, rule.name), []).append(rule)
        for kind, name in self._prefixed:
            lengths = self._lengths.setdefault(kind, [])
            if len(name) not in lengths:
                lengths.append(len(name))

    def decide(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> Decision:
        return _judged(
            rule for rule in self._about(kind, name) if rule.is_of(principal) and _speaks(rule, operation)
        )

    def _about(self, kind: ResourceKind, name: str) -> Iterator[Rule]:
        """Yields the rules that hold for a resource."""
        yield from self._literal.get((kind, name), ())
        if name != EVERYTHING:
            yield from self._literal.get((kind, EVERYTHING), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        """Whether some name of a kind may be allowed: a rule allows it that no denying rule covers whole."""
        own = [rule for rule in self.all if rule.kind is kind and rule.is_of(principal)]
        denied = [rule for rule in own if rule.permission is Permission.DENY and denies(rule, operation)]
        for rule in own:
            if rule.permission is not Permission.ALLOW or not allows(rule, operation):
                continue
            if not any(_covers(other, rule) for other in denied):
                return Decision(True, rule.words)
        return NO_RULE

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        """Whether every name that begins with `prefix` is allowed: one rule allows them all, and no rule
        denies one of them."""
        allowed = NO_RULE
        for rule in self.all:
            if rule.kind is not kind or not rule.is_of(principal) or not _speaks(rule, operation):
                continue
            if rule.permission is Permission.DENY:
                if _meets(rule, prefix):
                    return Decision(False, rule.words)
            elif _holds_for_all(rule, prefix):
                allowed = Decision(True, rule.words)
        return allowed


def _judged(found: Iterable[Rule]) -> Decision:
    """Deny wins; without a rule that allows, it is refused."""
    allowed = NO_RULE
    for rule in found:
        if rule.permission is Permission.DENY:
            return Decision(False, rule.words)
        allowed = Decision(True, rule.words)
    return allowed


def _holds_for_all(rule: Rule, prefix: str) -> bool:
    if rule.pattern is Pattern.PREFIXED:
        return prefix.startswith(rule.name)
    return rule.name == EVERYTHING


def _meets(rule: Rule, prefix: str) -> bool:
    """Whether a rule holds for some name that begins with `prefix`."""
    if rule.pattern is Pattern.PREFIXED:
        return rule.name.startswith(prefix) or prefix.startswith(rule.name)
    return rule.name == EVERYTHING or rule.name.startswith(prefix)


def _covers(rule: Rule, other: Rule) -> bool:
    """Whether `rule` holds for every name for which `other` does."""
    if other.pattern is Pattern.PREFIXED:
        return _holds_for_all(rule, other.name)
    if other.name == EVERYTHING:
        return _holds_for_all(rule, "")
    return rule.names(other.name)
