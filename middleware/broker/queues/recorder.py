"""What has to be stored of queues so that they outlive the process: told as it happens, in order.

Whoever stores it gathers it until the turn ends, and stores it before what depends on it is said: a confirm
of a persistent message after `enqueued`, and whatever a client is answered about definitions. What is told
of messages is of persistent ones in durable queues only; their part has its `place` in the store.
"""

from __future__ import annotations

from collections.abc import Mapping

from mypy_extensions import mypyc_attr

from .message import Part


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    """Stores nothing: of a host whose queues end with it. Each virtual host has one of its own."""

    def of(self, vhost: str) -> Recorder:
        """That of a virtual host."""
        return self

    def enqueued(self, queue: bytes, part: Part) -> None:
        """The queue holds the part."""

    def handed(self, queue: bytes, part: Part) -> None:
        """Somebody was given it: should it be delivered again, it is redelivered."""

    def returned(self, queue: bytes, part: Part) -> None:
        """It is back in the queue, with its count of failed deliveries."""

    def settled(self, queue: bytes, part: Part, offset: int, count: int) -> None:
        """The queue holds `count` of its messages from number `offset` on no more."""

    def declared(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        """A durable exchange or queue, a policy or operator_policy is there, as `definition` says."""

    def deleted(self, kind: str, name: bytes) -> None:
        """It is not, and none of its bindings and messages."""

    def bound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        """A durable exchange is bound to something durable."""

    def unbound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        """It is bound no more."""
