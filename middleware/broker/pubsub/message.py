"""A published message, a run of them as they came, and who takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from treecast.middleware.storage.block_log import BlockSegment

    from .subscriptions import Target

NEVER = 0.0


class Message:
    """One message. It is shared by all that have it queued, and never changed once it is published.

    `properties` are opaque to the broker, in the spelling of `format`. `expires_at` is in seconds since the
    Unix epoch, NEVER where it does not expire. `stamp` orders retained messages of one topic. `number` is
    its place in the journal, 0 where it has none; `waiting` counts who has still to settle it there.
    """

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        expires_at: float = NEVER,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_at = expires_at
        self.stamp = 0
        self.number = 0
        self.waiting = 0
        self.segment: BlockSegment | None = None
        # What a face has made of it, kept for the next subscriber: at most one per spelling.
        self.spelt: dict[int, bytes] | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in a queue, roughly."""
        return len(self.topic) + len(self.payload) + len(self.properties)


@mypyc_attr(allow_interpreted_subclasses=True)
class Run:
    """Messages of QoS 0, or of QoS 1, one after the other, all to the same targets, as the bytes that came.

    Who speaks `format` may be sent `data` as it is; others ask for `messages()`.
    """

    def __init__(self, format: int, data: bytes, count: int) -> None:
        self.format = format
        self.data = data
        self.count = count

    def messages(self) -> list[Message]:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriber:
    """Who has subscriptions: a client's session, or another host that is interested (`foreign`).

    `serial` tells subscribers apart for as long as the process lives. `durable`: what it is owed of QoS 1
    and 2 outlives the process.
    """

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.durable = False
        self.foreign = False
        self.name = ""  # of a client, its id

    def take(self, message: Message, target: Target) -> None:
        """Takes over one message."""
        raise NotImplementedError

    def take_run(self, run: Run, target: Target) -> None:
        """Takes over a run. Never called where `target` has to leave out what the subscriber published."""
        for message in run.messages():
            self.take(message, target)

    @property
    def ready(self) -> bool:
        """Whether it can be handed a message of a shared subscription now."""
        return True
