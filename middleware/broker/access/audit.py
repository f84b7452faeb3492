"""The audit trail: who did what to which resource, from where, allowed or not, and by which rule. Pure.

A publish is no row of its own: a row counts what was the same in an interval, by principal, resource and
decision. Connections keep the `Use` of a decision and raise its count. So a request costs an addition, and
`take` finds all counts at the end of the interval. Rows hold names and decisions only.

| | kept |
| --- | --- |
| in an interval | each new `Use`, also of connections that end |
| between intervals | those that a connection still has |
| above `most` | one row for each face counts the rest, allowed and refused |
"""

from __future__ import annotations

import weakref
from typing import Final

from msgspec import Struct

from treecast.middleware.model.principal import Principal

from .authorizer import Decision, Operation

_MOST: Final = 8192  # rows of an interval
_LONGEST: Final = 256  # characters of a name
LOG_IN: Final = "log-in"
OTHERS: Final = "others"  # the resource of rows beyond the bound
_QUIET: Final = frozenset({Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})  # counted when refused only

Key = tuple[str, str, str, str, str, str, bool, str]


class Row(Struct, frozen=True, omit_defaults=True):
    """A line of the log: equal uses of an interval. `proof`: how the principal has proven its name."""

    face: str
    principal: str
    address: str
    proof: str
    action: str
    resource: str
    allowed: bool
    rule: str
    count: int


class Use:
    """A decision, and how often it was used since the last interval."""

    __slots__ = ("__weakref__", "allowed", "count", "key")

    def __init__(self, allowed: bool, key: Key | None = None) -> None:
        self.allowed = allowed
        self.count = 0
        self.key = key


class Trail:
    """The decisions of a host, from `take` to `take`."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: weakref.WeakValueDictionary[Key, Use] = weakref.WeakValueDictionary()
        self._strong: list[Use] = []  # all of `_known`: none ends with a count that was not taken

    def use(
        self,
        face: str,
        principal: Principal,
        action: str,
        kind: str,
        name: str,
        decision: Decision,
    ) -> Use:
        """Returns the row of a decision; who uses it raises its count."""
        resource = f"{kind} {name[:_LONGEST]}" if kind else name[:_LONGEST]
        key = (
            *(face, principal.name[:_LONGEST], principal.address, principal.proof.value, action, resource),
            *(decision.allowed, decision.rule),
        )
        found = self._known.get(key)
        if found is None and len(self._known) >= self._most:
            key = (face, "", "", "", "", OTHERS, decision.allowed, "")
            found = self._known.get(key)
        if found is None:
            found = self._known[key] = Use(decision.allowed, key)
            self._strong.append(found)
        return found

    def logged_in(self, face: str, principal: Principal, rule: str, *, allowed: bool) -> None:
        """Notes a log-in that succeeded or failed. `rule`: why."""
        self.use(face, principal, LOG_IN, "", "", Decision(allowed, rule)).count += 1

    def take(self) -> list[Row]:
        """Returns the rows of the interval that ends now."""
        rows = [Row(*one.key, one.count) for one in self._strong if one.count and one.key is not None]
        for one in self._strong:
            one.count = 0
        self._strong = []  # those that no connection has leave `_known` here
        self._strong = list(self._known.values())
        return rows


def is_noted(operation: Operation, *, allowed: bool) -> bool:
    """Whether a use is noted. Looking is done all the time: it is noted when it is refused."""
    return not allowed or operation not in _QUIET
