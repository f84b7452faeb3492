"""The management calls about policies."""

from __future__ import annotations

from collections.abc import Mapping

from treecast.middleware.broker.queues import Policy, VirtualHost

from .management_call import (
    CHANGED,
    POLICYMAKER,
    Call,
    Response,
    not_found,
    number_of,
    put_response,
    table_of,
    text_of,
)
from .management_definitions import Document, Rows, policy_item
from .users import ADMINISTRATOR


class PolicyCalls:
    """The policies of virtual hosts. `operator`: the operators' own, which only administrators change."""

    def __init__(self, *, operator: bool) -> None:
        self._operator = operator
        self._needed = ADMINISTRATOR if operator else POLICYMAKER

    def every(self, call: Call) -> Rows:
        call.need(POLICYMAKER)
        return [policy_item(vhost.name, one) for vhost in call.vhosts() for one in self._of(vhost).values()]

    def one(self, call: Call) -> Document:
        return call.named_row(self.every(call))

    def put(self, call: Call) -> Response:
        call.need(self._needed)
        vhost, name = call.vhost(used=not self._operator), call.arguments["name"]
        body = call.body("pattern", "definition")
        policy = Policy(
            name,
            text_of(body, "pattern"),
            table_of(body, "definition"),
            number_of(body, "priority", 0),
            text_of(body, "apply-to", "queues" if self._operator else "all"),
        )
        new = name not in self._of(vhost)
        vhost.policies.set(policy, call.now, operator=self._operator)
        return put_response(new)

    def delete(self, call: Call) -> Response:
        call.need(self._needed)
        vhost = call.vhost(used=not self._operator)
        if not vhost.policies.delete(call.arguments["name"], call.now, operator=self._operator):
            raise not_found()
        return CHANGED

    def _of(self, vhost: VirtualHost) -> Mapping[str, Policy]:
        return vhost.policies.operators if self._operator else vhost.policies.users
