"""The interface through which queues report durable changes, as they happen and in order.

The implementation gathers the changes until the turn ends, and stores them before any dependent reply: the
confirm of a persistent message after `enqueued`, and replies about definitions. Only persistent messages in
durable queues are reported; their part has its `place` in the store.
"""

from __future__ import annotations

from collections.abc import Mapping

from mypy_extensions import mypyc_attr

from .message import Part


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    """A recorder that stores nothing, for hosts whose queues end with the process. Each virtual host has its
    own recorder."""

    def of(self, vhost: str) -> Recorder:
        """Returns the recorder of a virtual host."""
        return self

    def enqueued(self, queue: bytes, part: Part) -> None:
        """The queue now holds the part."""

    def handed(self, queue: bytes, part: Part) -> None:
        """The part was delivered: another delivery is a redelivery."""

    def returned(self, queue: bytes, part: Part) -> None:
        """The part is back in the queue, with its count of failed deliveries."""

    def settled(self, queue: bytes, part: Part, offset: int, count: int) -> None:
        """The queue no longer holds `count` messages of the part from index `offset` on."""

    def declared(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        """A durable exchange or queue, a policy or an operator_policy now exists with `definition`."""

    def noted(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        """As `declared`, for a value that changes often: the last one is stored with the next changes."""

    def deleted(self, kind: str, name: bytes) -> None:
        """It no longer exists, nor do its bindings and messages."""

    def bound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        """A durable exchange was bound to a durable destination."""

    def unbound(
        self, source: bytes, kind: str, name: bytes, key: bytes, arguments: Mapping[str, object]
    ) -> None:
        """The binding was removed."""

    def ends(self, exchange: bytes) -> bool:
        """Returns whether an auto-delete exchange that has lost its last binding is deleted now."""
        return True
