"""What is kept of a durable session, as values that the journal writes and reads."""

from __future__ import annotations

from .message import Message


class Owed:
    """A message that a session has been handed and has not settled. `sent`: its client may have got it."""

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.sent = False


class WillRecord:
    """What is published for a client that goes without saying so, `delay` seconds later.

    `lives`: so many seconds from then on, -1: for ever. `properties`: as a publish has them.
    """

    def __init__(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, properties: bytes, delay: int, lives: int
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.delay = delay
        self.lives = lives


class SubscriptionRecord:
    """A subscription's options as one number, and its identifier."""

    def __init__(self, options: int, identifier: int) -> None:
        self.options = options
        self.identifier = identifier


class Creditor:
    """Who is owed messages: a durable session, and by a client id that begins with U+0000, which no client's
    can, an event stream or a spool. `number` is its own for ever. `gone_at`: when its client went, in seconds
    since the Unix epoch, 0.0 while it is connected. `will`: what is due `will.delay` after `gone_at`.

    `incoming`: packet ids of QoS 2 that its client has not released. `sent`: message numbers of QoS 2 that it
    was sent, by packet id; `released`: packet ids of which it has the message, and which are not completed.
    """

    def __init__(self, number: int, client_id: str) -> None:
        self.number = number
        self.client_id = client_id
        self.expiry = 0
        self.gone_at = 0.0
        self.will: WillRecord | None = None
        self.subscriptions: dict[bytes, SubscriptionRecord] = {}
        self.owed: dict[int, Owed] = {}
        self.incoming: set[int] = set()
        self.sent: dict[int, int] = {}
        self.released: set[int] = set()

    @property
    def of_client(self) -> bool:
        return not self.client_id.startswith("\0")
