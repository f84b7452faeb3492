"""The policies of one virtual host, applied to new declarations and, on a change, to existing objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import policies
from .any_queue import AnyQueue
from .arguments import QueueArguments, QueueType, parsed
from .exchange import Exchange
from .ledger import Ledger
from .policies import Policy
from .routing import Router

Both = tuple[Policy | None, Policy | None]


class Policies:
    """The policies (`users`) and operator policies (`operators`) of one virtual host, by name.

    `touched` is called with each queue that a change of them may have changed, and with the time.
    """

    def __init__(self, router: Router, ledger: Ledger, touched: Callable[[AnyQueue, float], None]) -> None:
        self.users: dict[str, Policy] = {}
        self.operators: dict[str, Policy] = {}
        self._router = router
        self._ledger = ledger
        self._touched = touched

    def set(self, policy: Policy, now: float, *, operator: bool = False) -> None:
        """Sets or replaces the policy of that name. Refuses an invalid policy with PRECONDITION_FAILED."""
        policies.check(policy, operator=operator)
        known, kind = self._known(operator)
        if known.get(policy.name) == policy:
            return
        known[policy.name] = policy
        self._ledger.declared(kind, policy.name.encode(), policy.said, durable=True)
        self._apply_to_all(now)

    def delete(self, name: str, now: float, *, operator: bool = False) -> bool:
        """Deletes a policy. Returns whether it existed."""
        known, kind = self._known(operator)
        if known.pop(name, None) is None:
            return False
        self._ledger.deleted(kind, name.encode(), durable=True)
        self._apply_to_all(now)
        return True

    def _known(self, operator: bool) -> tuple[dict[str, Policy], str]:
        return (self.operators, "operator_policy") if operator else (self.users, "policy")

    def clear(self) -> None:
        """Deletes all policies, of a virtual host without exchanges and queues."""
        for operator in (False, True):
            known, kind = self._known(operator)
            for name in known:
                self._ledger.deleted(kind, name.encode(), durable=True)
            known.clear()

    def _apply_to_all(self, now: float) -> None:
        for exchange in self._router.exchanges.values():
            self.apply_to(exchange)
        self._router.changed()
        for queue in list(self._router.queues.values()):
            both, arguments = self.of_queue(queue.name, queue.arguments.type, queue.asked)
            queue.policies = both
            queue.change(arguments, now)
            self._touched(queue, now)

    def apply_to(self, exchange: Exchange) -> None:
        """Applies the policies to an exchange. A declared alternate exchange takes precedence."""
        exchange.policies = (
            policies.for_exchange(self.users, exchange.name),
            policies.for_exchange(self.operators, exchange.name),
        )
        said = policies.merged(*exchange.policies).get("alternate-exchange")
        by_policy = said.encode() if isinstance(said, str) else None
        exchange.alternate = exchange.declared_alternate or by_policy

    def of_queue(
        self, name: bytes, kind: QueueType, asked: Mapping[str, object]
    ) -> tuple[Both, QueueArguments]:
        """Returns (the effective policies, the arguments that result from them and `asked`)."""
        both = (
            policies.for_queue(self.users, name, kind),
            policies.for_queue(self.operators, name, kind),
        )
        return both, parsed(kind, policies.with_policy(asked, policies.merged(*both), kind))
