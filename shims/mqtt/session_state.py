"""What MQTT calls the session state: subscriptions, queue, packets in flight. It outlives connections.

A `Session` is one connection of it. While there is none, or its client does not read, or has as much in
flight as it wants, messages wait in a queue that is bounded in number and bytes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from treecast.middleware.broker.pubsub import (
    NEVER,
    Message,
    PubSub,
    QueuePolicy,
    Run,
    SessionRecord,
    Subscriber,
    Subscription,
    Target,
)

from . import codec
from .deliveries import EMPTY, QUEUED, RELEASED, SENT, Delivery, run_delivery

if TYPE_CHECKING:
    from .codec_packets import Will
    from .session import Session

FOREVER: Final = 0xFFFFFFFF
_IDS: Final = 65535


class SessionState(Subscriber):
    """The state of one client id. `expiry`: seconds that it outlives a connection by, FOREVER for good."""

    def __init__(self, hub: PubSub, serial: int, client_id: str) -> None:
        super().__init__(serial)
        self.client_id = self.name = client_id
        self.expiry = 0
        self.record: SessionRecord | None = None  # where the session is durable
        self.session: Session | None = None
        self.will: Will | None = None
        self.will_at = 0.0  # when it is published, while there is no connection
        self.ends_at = 0.0  # when the session ends, while there is no connection
        self.ended = False
        self.subscriptions: dict[bytes, Subscription] = {}
        self.incoming: set[int] | None = None  # ids of QoS 2 that the client has not released
        self.inflight: dict[int, Delivery] | None = None  # by packet id, in the order of sending
        self._hub = hub
        self._queue: deque[Delivery] | None = None
        self._queued_bytes = 0
        self._queued_messages = 0
        self._last_id = 0

    @property
    def queued(self) -> int:
        return self._queued_messages

    @property
    def ready(self) -> bool:
        session = self.session
        return session is not None and not self._queue and session.writable and self._window_open(session)

    def _window_open(self, session: Session) -> bool:
        return self.inflight is None or len(self.inflight) < session.window

    # --- what comes from the hub

    def take(self, message: Message, target: Target) -> None:
        retain = message.retain and target.retain_as_published
        qos = message.qos if message.qos < target.qos else target.qos
        self.hand_over(message, qos, retain, target.identifiers)

    def hand_over(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        """Sends the message, or queues it."""
        session = self.session
        if qos == 0:
            if session is None:
                return
            if not self._queue and session.writable:
                session.send_publish(message, 0, 0, retain, identifiers)
                return
            self._enqueue(Delivery(message, 0, retain, identifiers))
            return
        delivery = Delivery(message, qos, retain, identifiers)
        if session is not None and not self._queue and session.writable and self._window_open(session):
            self._owe(delivery)
            self._send(session, delivery)
        else:
            self._enqueue(delivery)

    def take_run(self, run: Run, target: Target) -> None:
        session = self.session
        if session is None:
            return
        if target.plain and run.format == session.version and session.takes_runs:
            if not self._queue and session.writable:
                session.send_run(run)
            else:
                self._enqueue(run_delivery(run))
            return
        for message in run.messages():
            self.take(message, target)

    def _owe(self, delivery: Delivery) -> None:
        """Tells the journal, where the session is durable."""
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None:
            journal.owe(record, delivery)

    # --- the queue

    def _enqueue(self, delivery: Delivery) -> None:
        settings = self._hub.settings
        queue = self._queue
        if queue is None:
            queue = self._queue = deque()
        size = delivery.size
        while (
            self._queued_bytes + size > settings.queue_bytes
            or self._queued_messages + delivery.count > settings.queue_messages
        ):
            if not queue or settings.queue_policy is not QueuePolicy.DROP_OLD:
                self._refuse(delivery)
                return
            self._drop_oldest(queue)
        if delivery.qos:
            self._owe(delivery)
        queue.append(delivery)
        self._queued_bytes += size
        self._queued_messages += delivery.count

    def _refuse(self, delivery: Delivery) -> None:
        self._hub.counters.dropped_full += delivery.count
        session = self.session
        if session is not None and self._hub.settings.queue_policy is QueuePolicy.DISCONNECT:
            session.disconnect(codec.QUOTA_EXCEEDED, "the client reads too slowly")

    def _drop_oldest(self, queue: deque[Delivery]) -> None:
        oldest = self._popped(queue)
        self._hub.counters.dropped_full += oldest.count
        self._settle(oldest)

    def _popped(self, queue: deque[Delivery]) -> Delivery:
        delivery = queue.popleft()
        self._queued_bytes -= delivery.size
        self._queued_messages -= delivery.count
        return delivery

    def pump(self) -> None:
        """Sends of the queue what can be sent now."""
        session = self.session
        queue = self._queue
        if session is None or queue is None:
            return
        while queue and session.writable:
            delivery = queue[0]
            if delivery.qos and not self._window_open(session):
                return
            self._popped(queue)
            self._send_queued(session, delivery)
        if not queue:
            self._queue = None

    def _send_queued(self, session: Session, delivery: Delivery) -> None:
        run = delivery.run
        if run is not None:
            if run.format == session.version:
                session.send_run(run)
            else:
                for message in run.messages():
                    session.send_publish(message, 0, 0, False, ())
        elif self._expired(delivery.message):
            self._hub.counters.expired += 1
            self._settle(delivery)
        elif delivery.qos:
            self._send(session, delivery)
        else:
            session.send_publish(delivery.message, 0, 0, delivery.retain, delivery.identifiers)

    def _expired(self, message: Message) -> bool:
        return message.expires_at != NEVER and message.expires_at <= self._hub.wall

    # --- in flight

    def _send(self, session: Session, delivery: Delivery) -> None:
        """Sends for the first time, with a new packet id."""
        inflight = self.inflight
        if inflight is None:
            inflight = self.inflight = {}
        packet_id = self._last_id + 1
        if packet_id > _IDS:
            packet_id = 1
        while packet_id in inflight:  # ends: the window is narrower than the ids are many
            packet_id = packet_id + 1 if packet_id < _IDS else 1
        self._last_id = packet_id
        delivery.packet_id = packet_id
        delivery.state = SENT
        flags = delivery.qos << 1 | (0x08 if delivery.again else 0)
        if not session.send_publish(
            delivery.message, flags, packet_id, delivery.retain, delivery.identifiers
        ):
            self._settle(delivery)  # too large for the client, which never hears of it [MQTT-3.1.2-25]
            return
        inflight[packet_id] = delivery
        if delivery.qos == 2:
            journal, record = self._hub.journal, self.record
            if journal is not None and record is not None:
                journal.sent(record, delivery.message, packet_id)

    def acknowledged(self, packet_id: int) -> bool:
        """PUBACK; whether it was awaited."""
        inflight = self.inflight
        if inflight is None:
            return False
        delivery = inflight.get(packet_id)
        if delivery is None or delivery.qos != 1:
            return False
        del inflight[packet_id]
        self._settle(delivery)
        return True

    def received(self, packet_id: int, refused: bool) -> bool:
        """PUBREC; whether it was awaited. Then PUBREL is owed, unless the client refused the message."""
        inflight = self.inflight
        delivery = inflight.get(packet_id) if inflight is not None else None
        if inflight is None or delivery is None or delivery.qos != 2:
            return False
        if refused:
            del inflight[packet_id]
            self._unsend(delivery)
            return False
        if delivery.state == SENT:
            delivery.state = RELEASED
            journal, record = self._hub.journal, self.record
            if journal is not None and record is not None:
                journal.received(record, delivery.message, packet_id)
            delivery.message = EMPTY
        return True

    def completed(self, packet_id: int) -> bool:
        """PUBCOMP; whether it was awaited."""
        inflight = self.inflight
        delivery = inflight.get(packet_id) if inflight is not None else None
        if inflight is None or delivery is None or delivery.state != RELEASED:
            return False
        del inflight[packet_id]
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None:
            journal.completed(record, packet_id)
        return True

    def _settle(self, delivery: Delivery) -> None:
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None and delivery.qos:
            journal.settled(record, delivery.message)

    def _unsend(self, delivery: Delivery) -> None:
        """A message that was sent is settled though the client does not have it."""
        self._settle(delivery)
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None and delivery.qos == 2:
            journal.unsent(record, delivery.packet_id)

    # --- connections

    def resume(self, session: Session) -> None:
        """A connection takes the session up: sends again what is in flight [MQTT-4.4.0-1], then the queue."""
        inflight = self.inflight
        if inflight is not None:
            for packet_id, delivery in list(inflight.items()):
                if delivery.state == RELEASED:
                    session.send_release(packet_id)
                elif not session.send_publish(
                    delivery.message,
                    delivery.qos << 1 | 0x08,
                    packet_id,
                    delivery.retain,
                    delivery.identifiers,
                ):
                    del inflight[packet_id]
                    self._unsend(delivery)
        self.pump()

    def detach(self) -> None:
        """The connection is gone: what was of QoS 0 goes with it."""
        self.session = None
        queue = self._queue
        if queue is None:
            return
        kept = [delivery for delivery in queue if delivery.qos]
        self._queue = deque(kept) if kept else None
        self._queued_messages = len(kept)
        self._queued_bytes = sum([delivery.size for delivery in kept])

    def clear(self) -> None:
        """The session ends: nothing is owed any more."""
        self.ended = True
        self._queue = None
        self._queued_bytes = self._queued_messages = 0
        self.inflight = None
        self.incoming = None

    # --- from the journal

    def restore(self, delivery: Delivery) -> None:
        """Takes back what the journal has kept, in order."""
        if delivery.state == QUEUED:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(delivery)
            self._queued_bytes += delivery.size
            self._queued_messages += 1
            return
        if self.inflight is None:
            self.inflight = {}
        self.inflight[delivery.packet_id] = delivery
        self._last_id = max(self._last_id, delivery.packet_id)

    def unsettled(self) -> list[Delivery]:
        """All that is in flight or queued, in order."""
        found = list(self.inflight.values()) if self.inflight is not None else []
        if self._queue is not None:
            found.extend(self._queue)
        return found
