"""The rights of one connection: decisions, kept until rules change, for each operation and resource."""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.principal import ANONYMOUS, Principal

from .audit import Trail, Use, is_noted
from .authorizer import CLUSTER, AllowAll, Authorizer, Operation, Resource, ResourceKind

_KEPT: Final = 4096  # decisions of one connection: beyond, all are decided once more
_FAULTS: Final = {
    ResourceKind.TOPIC: Fault.FORBIDDEN_TOPIC,
    ResourceKind.GROUP: Fault.FORBIDDEN_GROUP,
    ResourceKind.TRANSACTIONAL_ID: Fault.FORBIDDEN_TRANSACTION,
    ResourceKind.CLUSTER: Fault.FORBIDDEN_CLUSTER,
}


class Granted:
    """The rights of one connection. `principal` is anonymous until its client has logged in."""

    def __init__(
        self,
        authorizer: Authorizer,
        principal: Principal = ANONYMOUS,
        trail: Trail | None = None,
        face: str = "",
    ) -> None:
        """`trail`: where uses of decisions are noted, as those of `face`."""
        self.principal = principal
        self.trail = trail
        self.face = face
        self.authorizer = authorizer
        self._version = authorizer.version
        self._known: dict[tuple[Operation, ResourceKind, str], Use] = {}

    def become(self, principal: Principal) -> None:
        """The client has proven who it is."""
        self.principal = principal
        self._known.clear()

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the principal may do it, which it now asks for. Allowed looks are not noted, nor refused
        ones: who lists all that there is asks so."""
        found = self.use(operation, kind, name)
        if is_noted(operation, allowed=True):
            found.count += 1
        return found.allowed

    def would(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> bool:
        """Whether the principal might do it; nothing is noted."""
        return self.use(operation, kind, name).allowed

    def use(self, operation: Operation, kind: ResourceKind, name: str) -> Use:
        """Returns the decision, for who counts its uses."""
        version = self.authorizer.version
        if version != self._version or len(self._known) >= _KEPT:
            self._version = version
            self._known.clear()
        asked = (operation, kind, name)
        found = self._known.get(asked)
        if found is None:
            decision = self.authorizer.decide(self.principal, operation, Resource(kind, name))
            found = Use(decision.allowed)
            if self.trail is not None:
                what = operation.value
                found = self.trail.use(self.face, self.principal, what, kind.value, name, decision)
            self._known[asked] = found
        return found

    def may_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there may be a resource of a kind to which it may do it."""
        return self.authorizer.decide_any(self.principal, operation, kind).allowed

    def may_all(self, operation: Operation, kind: ResourceKind, prefix: str) -> bool:
        """Whether it may do it to every resource whose name begins with `prefix`."""
        return self.authorizer.decide_all(self.principal, operation, kind, prefix).allowed

    def check(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> None:
        """Raises FORBIDDEN_TOPIC, or the like for other kinds, if the principal lacks the right."""
        found = self.use(operation, kind, name)
        if is_noted(operation, allowed=found.allowed):
            found.count += 1
        if not found.allowed:
            raise self.refusal(operation, kind, name)

    def refusal(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> TreecastError:
        what = kind.value if kind is ResourceKind.CLUSTER else f"{kind.value} {name!r}"
        return TreecastError(_FAULTS[kind], f"{self.principal.name} has no right to {operation.value} {what}")


def everything() -> Granted:
    """Returns the rights on a host that asks nobody who it is."""
    return Granted(AllowAll())
