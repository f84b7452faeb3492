"""An authorizer whose decisions are noted, for faces that keep them in caches of their own."""

from __future__ import annotations

from treecast.middleware.model.principal import Principal

from .authorizer import Authorizer, Decision, Operation, Resource, ResourceKind
from .identities import Identities


class AuditedRights:
    """An authorizer that notes what it decides, for a face that keeps decisions itself.

    While there are no users, nothing is noted. Decisions on routing keys are noted when they are refused:
    there may be as many keys as messages.
    """

    def __init__(self, authorizer: Authorizer, identities: Identities, face: str) -> None:
        self._authorizer = authorizer
        self._identities = identities
        self._face = face

    @property
    def version(self) -> int:
        return self._authorizer.version

    def decide(self, principal: Principal, operation: Operation, resource: Resource) -> Decision:
        found = self._authorizer.decide(principal, operation, resource)
        kind, name = resource.kind, resource.name
        if kind is ResourceKind.ROUTING_KEY:
            name = f"{name} of {resource.exchange}"
        trail = self._identities.trail if self._identities.closed else None
        if trail is not None and (not found.allowed or kind is not ResourceKind.ROUTING_KEY):
            trail.use(self._face, principal, operation.value, kind.value, name, found).count += 1
        return found

    def decide_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> Decision:
        return self._authorizer.decide_any(principal, operation, kind)

    def decide_all(
        self, principal: Principal, operation: Operation, kind: ResourceKind, prefix: str
    ) -> Decision:
        return self._authorizer.decide_all(principal, operation, kind, prefix)
