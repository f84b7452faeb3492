"""The policies of one virtual host, applied to new declarations and, on a change, to existing objects."""

from __future__ import annotations

from collections.abc import Mapping

from mypy_extensions import mypyc_attr

from . import policies
from .any_queue import AnyQueue
from .arguments import QueueArguments, QueueType, parsed
from .exchange import Exchange
from .policies import Policy
from .recorder import Recorder
from .routing import Router

Both = tuple[Policy | None, Policy | None]


@mypyc_attr(allow_interpreted_subclasses=True)
class PolicedRouter(Router):
    """A router whose exchanges and queues are subject to policies and operator policies."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        super().__init__(name)
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        self._recorder = recorder
        self.sharing = Recorder()  # hears of all definitions, for other hosts; also of transient ones

    def touched(self, queue: AnyQueue, now: float) -> None:
        """Follows up on a change to a queue."""
        raise NotImplementedError

    def set_policy(self, policy: Policy, now: float, *, operator: bool = False) -> None:
        """Sets or replaces the policy of that name. Refuses an invalid policy with PRECONDITION_FAILED."""
        policies.check(policy, operator=operator)
        known, kind = self._known(operator)
        if known.get(policy.name) == policy:
            return
        known[policy.name] = policy
        self._recorder.declared(kind, policy.name.encode(), policy.said)
        self.sharing.declared(kind, policy.name.encode(), policy.said)
        self._apply_to_all(now)

    def delete_policy(self, name: str, now: float, *, operator: bool = False) -> bool:
        """Deletes a policy. Returns whether it existed."""
        known, kind = self._known(operator)
        if known.pop(name, None) is None:
            return False
        self._recorder.deleted(kind, name.encode())
        self.sharing.deleted(kind, name.encode())
        self._apply_to_all(now)
        return True

    def _known(self, operator: bool) -> tuple[dict[str, Policy], str]:
        return (self.operator_policies, "operator_policy") if operator else (self.policies, "policy")

    def _apply_to_all(self, now: float) -> None:
        for exchange in self.exchanges.values():
            self._police_exchange(exchange)
        self.changed()
        for queue in list(self.queues.values()):
            both, arguments = self._queue_policies(queue.name, queue.arguments.type, queue.asked)
            queue.policies = both
            queue.change(arguments, now)
            self.touched(queue, now)

    def _police_exchange(self, exchange: Exchange) -> None:
        """Applies the policies to an exchange. A declared alternate exchange takes precedence."""
        exchange.policies = (
            policies.for_exchange(self.policies, exchange.name),
            policies.for_exchange(self.operator_policies, exchange.name),
        )
        said = policies.merged(*exchange.policies).get("alternate-exchange")
        by_policy = said.encode() if isinstance(said, str) else None
        exchange.alternate = exchange.declared_alternate or by_policy

    def _queue_policies(
        self, name: bytes, kind: QueueType, asked: Mapping[str, object]
    ) -> tuple[Both, QueueArguments]:
        """Returns (the effective policies, the arguments that result from them and `asked`)."""
        both = (
            policies.for_queue(self.policies, name, kind),
            policies.for_queue(self.operator_policies, name, kind),
        )
        return both, parsed(kind, policies.with_policy(asked, policies.merged(*both), kind))
