"""The MQTT session state: subscriptions, queue and packets in flight. It outlives connections.

A `Session` is one connection of it, of which it knows the `output` only. While there is no connection, the
client does not read, or its window is full, messages wait in a queue that is bounded in messages and bytes.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import (
    NEVER,
    Creditor,
    Message,
    PromisedRun,
    PubSub,
    QueuePolicy,
    Run,
    Subscriber,
    Subscription,
    Target,
    WillRecord,
)

from . import codec
from .deliveries import (
    QUEUED,
    RELEASED,
    SENT,
    Again,
    Delivery,
    DeliveryQueue,
    InFlight,
    Part,
    RunDelivery,
    whole,
)
from .session_output import SessionOutput

FOREVER: Final = 0xFFFFFFFF


class SessionState(Subscriber):
    """The session state of one client id of a user, "" for nobody. `expiry` is the Session Expiry Interval in
    seconds, or FOREVER."""

    def __init__(self, hub: PubSub, serial: int, client_id: str, user: str = "") -> None:
        super().__init__(serial)
        self.client_id = self.name = client_id
        self.user = user
        self.expiry = 0
        self.record: Creditor | None = None  # set if the output is durable
        self.output: SessionOutput | None = None
        self.will: WillRecord | None = None
        self.will_at = 0.0  # when the will is published; set while disconnected
        self.ends_at = 0.0  # when the session ends; set while disconnected
        self.ended = False
        self.subscriptions: dict[bytes, Subscription] = {}
        self.incoming: set[int] | None = (
            None  # packet ids of QoS 2 publishes that the client has not released
        )
        self.inflight: InFlight | None = None
        self._hub = hub
        self._queue: DeliveryQueue | None = None  # None if nothing waits
        self._again: Again | None = None  # None if all in flight was sent on this connection

    @property
    def queued(self) -> int:
        return self._queue.messages if self._queue is not None else 0

    @property
    def online(self) -> bool:
        return self.output is not None

    @property
    def ready(self) -> bool:
        output = self.output
        return output is not None and self._sends(output) and self._window(output) > 0

    def _sends(self, output: SessionOutput) -> bool:
        """Whether a message can be sent without waiting."""
        return self._queue is None and self._again is None and output.writable

    def _window(self, output: SessionOutput) -> int:
        """Returns how many more messages may be sent before the client acknowledges some. None if those in
        flight take the memory of a queue, unless they are to be sent again."""
        if self.inflight is None:
            return output.window
        if self._again is None and self.inflight.bytes >= self._hub.settings.queue_bytes:
            return 0
        return output.window - self.inflight.count + (self._again.count if self._again is not None else 0)

    def _flight(self) -> InFlight:
        if self.inflight is None:
            self.inflight = InFlight()
        return self.inflight

    # --- called by the hub

    def take(self, message: Message, target: Target) -> None:
        retain = message.retain and target.retain_as_published
        qos = message.qos if message.qos < target.qos else target.qos
        self.hand_over(message, qos, retain, target.identifiers, target.share)

    def hand_over(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        share: bytes = b"",
    ) -> None:
        """Sends or queues a message. `share`: as in `Owed`."""
        output = self.output
        if qos == 0:
            if output is None:
                return
            if self._sends(output):
                output.send_publish(message, 0, 0, retain, identifiers)
                return
            self._enqueue(Delivery(message, 0, retain, identifiers, share))
            return
        delivery = Delivery(message, qos, retain, identifiers, share)
        if output is not None and self._sends(output) and self._window(output) > 0:
            delivery.sent = True  # stored in the same turn, so it may be marked as sent now
            self._owe(delivery)
            self._send(output, delivery, 0)
        else:
            self._enqueue(delivery)

    def take_run(self, run: Run, target: Target) -> None:
        output = self.output
        if isinstance(run, PromisedRun):
            self._take_promised(run, target)
        elif output is None:
            return
        elif not output.takes_runs_for(target):
            for message in run.messages():
                self.take(message, target)
        elif self._sends(output):
            output.send_run(run.in_format(output.version))
        else:
            self._enqueue(RunDelivery(run.in_format(output.version)))

    def _take_promised(self, run: PromisedRun, target: Target) -> None:
        """Takes a QoS 1 run, as raw bytes if the output is not durable."""
        output = self.output
        if output is not None and self.record is None and output.takes_runs_for(target):
            spelt = run.in_format(output.version)
            assert isinstance(spelt, PromisedRun)
            if target.qos:
                self._take_part(output, whole(spelt))
                return
            if self._sends(output) and len(spelt.data) <= output.room:
                output.send_run(spelt.as_qos_0())
                return
        journal = self._hub.journal
        if journal is None or self.record is None or not target.qos or not run.unread:
            for message in run.messages():
                self.take(message, target)
            return
        journal.hold_run(run)  # the journal then writes it as one run, and messages refer to it
        for message in run.messages():
            self.take(message, target)
        journal.let_go_run(run)

    def _take_part(self, output: SessionOutput, part: Part) -> None:
        while part.left and self._sends(output) and self._window(output) > 0:
            first, count = self._ids(output, part)
            self._send_part(output, part.cut(count, output.room), first)
        if part.left == 0:
            return
        if self._fits(part):
            self._append(part)
        else:
            for one in part.singles():
                self._enqueue(one)

    def _owe(self, delivery: Delivery) -> None:
        """Records the delivery in the journal if the output is durable, or if other members of its shared
        subscription outlive this process."""
        journal, record = self._hub.journal, self.record
        if record is None and delivery.share:
            record = delivery.creditor = self._hub.shares.creditor(delivery.share)
        if journal is not None and record is not None:
            journal.owe(record, delivery)

    # --- the queue

    def _fits(self, delivery: Delivery) -> bool:
        """Whether the queue has room for the delivery."""
        settings, queue = self._hub.settings, self._queue
        messages, size = delivery.count, delivery.size
        if queue is not None:
            messages += queue.messages
            size += queue.bytes
        return size <= settings.queue_bytes and messages <= settings.queue_messages

    def _enqueue(self, delivery: Delivery) -> None:
        while not self._fits(delivery):
            if self._queue is None or self._hub.settings.queue_policy is not QueuePolicy.DROP_OLD:
                self._refuse(delivery)
                return
            self._drop_oldest(self._queue)
        if delivery.qos:
            self._owe(delivery)
        self._append(delivery)

    def _append(self, delivery: Delivery) -> None:
        if self._queue is None:
            self._queue = DeliveryQueue()
        self._queue.append(delivery)

    def _refuse(self, delivery: Delivery) -> None:
        self._hub.counters.dropped_full += delivery.count
        output = self.output
        if output is not None and self._hub.settings.queue_policy is QueuePolicy.DISCONNECT:
            output.disconnect(codec.QUOTA_EXCEEDED, "the client reads too slowly")

    def _drop_oldest(self, queue: DeliveryQueue) -> None:
        oldest = queue.pop()
        if not len(queue):
            self._queue = None
        self._hub.counters.dropped_full += oldest.count
        self._settle(oldest)

    def pump(self) -> None:
        """Sends queued messages as far as the window and the output allow."""
        output = self.output
        if output is not None and self._again is not None:
            self._send_again(output, self._again)
        queue = self._queue
        if output is None or queue is None or self._again is not None:
            return
        while len(queue) and output.writable:
            delivery = queue.first
            if delivery.qos and self._window(output) <= 0:
                return
            if isinstance(delivery, Part):
                first, count = self._ids(output, delivery)
                self._send_part(output, queue.cut(delivery, count, output.room), first)
            else:
                self._send_queued(output, queue.pop())
        if not len(queue):
            self._queue = None

    def _send_queued(self, output: SessionOutput, delivery: Delivery) -> None:
        if isinstance(delivery, RunDelivery):
            run = delivery.run
            if run.format == output.version:
                output.send_run(run)
            else:
                for message in run.messages():
                    output.send_publish(message, 0, 0, False, ())
        elif self._expired(delivery.message):
            self._hub.counters.expired += 1
            self._settle(delivery)
        elif delivery.qos:
            again = 0x08 if delivery.sent else 0  # sent by an earlier process: DUP
            self._note_sent(delivery)
            self._send(output, delivery, again)
        else:
            output.send_publish(delivery.message, 0, 0, delivery.retain, delivery.identifiers)

    def _expired(self, message: Message) -> bool:
        return message.expires_at != NEVER and message.expires_at <= self._hub.clock.wall

    # --- in flight

    def _note_sent(self, delivery: Delivery) -> None:
        """Records in the journal that a QoS 1 message is sent. QoS 2 is recorded by packet id, unless another
        record than the session's owes it."""
        journal, record, creditor = self._hub.journal, self.record, delivery.creditor
        if journal is None:
            return
        if creditor is not None:
            journal.handed(creditor, delivery)
        elif delivery.qos == 1 and record is not None:
            journal.handed(record, delivery)

    def _send(self, output: SessionOutput, delivery: Delivery, again: int) -> None:
        """Sends with a new packet id. `again` is DUP if it may have been sent before [MQTT-3.3.1-3]."""
        inflight = self._flight()
        inflight.give_id(delivery)
        packet_id = delivery.packet_id
        flags = delivery.qos << 1 | again
        if not output.send_publish(delivery.message, flags, packet_id, delivery.retain, delivery.identifiers):
            self._settle(delivery)  # too large for the client: dropped as if delivered [MQTT-3.1.2-25]
            return
        inflight.put(delivery)
        if delivery.qos == 2:
            journal, record = self._hub.journal, self.record
            if journal is not None and record is not None:
                journal.sent(record, delivery.message, packet_id)

    def _ids(self, output: SessionOutput, part: Part) -> tuple[int, int]:
        """Returns (the first packet id, how many in a row) for the messages of `part` to send now."""
        inflight = self._flight()
        first = inflight.next_id()
        return first, inflight.row(first, min(part.left, self._window(output)))

    def _send_part(self, output: SessionOutput, part: Part, first: int) -> None:
        """Sends messages of a run under packet ids from `first` on."""
        output.send_numbered(part.data, first, part.left)
        self._flight().put_part(part, first)

    def acknowledged_row(self, data: bytes, position: int, end: int) -> int:
        """Handles the PUBACKs from `position` on that are in sending order. Returns their number."""
        inflight = self.inflight
        return inflight.acknowledged(data, position, end) if inflight is not None else 0

    def acknowledged(self, packet_id: int) -> bool:
        """Handles a PUBACK. Returns whether it was expected."""
        inflight = self.inflight
        delivery = inflight.find(packet_id) if inflight is not None else None
        if inflight is None or delivery is None or delivery.qos != 1:
            return False
        inflight.remove(packet_id)
        self._not_again(delivery)
        self._settle(delivery)
        return True

    def received(self, packet_id: int, refused: bool) -> bool:
        """Handles a PUBREC. Returns whether a PUBREL is due.

        It is not if the PUBREC was unexpected or the client refused the message.
        """
        inflight = self.inflight
        delivery = inflight.find(packet_id) if inflight is not None else None
        if inflight is None or delivery is None or delivery.qos != 2:
            return False
        self._not_again(delivery)
        if refused:
            inflight.remove(packet_id)
            self._unsend(delivery)
            return False
        if delivery.state == SENT:
            delivery.state = RELEASED
            journal, record, creditor = self._hub.journal, self.record, delivery.creditor
            if journal is not None and record is not None:
                journal.received(record, delivery.message, packet_id)
            if journal is not None and creditor is not None:
                journal.settled(creditor, delivery.message)
            inflight.released(delivery)
        return True

    def completed(self, packet_id: int) -> bool:
        """Handles a PUBCOMP. Returns whether it was expected."""
        inflight = self.inflight
        delivery = inflight.find(packet_id) if inflight is not None else None
        if inflight is None or delivery is None or delivery.state != RELEASED:
            return False
        inflight.remove(packet_id)
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None:
            journal.completed(record, packet_id)
        return True

    def _settle(self, delivery: Delivery) -> None:
        journal, record, creditor = self._hub.journal, self.record, delivery.creditor
        if journal is None or not delivery.qos:
            return
        if record is not None:
            journal.settled(record, delivery.message)
        if creditor is not None:
            journal.settled(creditor, delivery.message)

    def _unsend(self, delivery: Delivery) -> None:
        """Settles a sent message that the client refused or cannot receive."""
        self._settle(delivery)
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None and delivery.qos == 2:
            journal.unsent(record, delivery.packet_id)

    # --- connections

    def resume(self, output: SessionOutput) -> None:
        """Resends to a new connection what is in flight [MQTT-4.4.0-1], then sends the queue."""
        if self.inflight is not None:
            self._resend(output, self.inflight)
        if self._queue is not None:
            self._queue.spread()  # the version or the limits of the client may have changed
        self.pump()

    def _resend(self, output: SessionOutput, inflight: InFlight) -> None:
        """Resends in order what the window of this connection allows; `pump` sends the rest."""
        deliveries = inflight.all()
        again = self._again = Again()
        for delivery in deliveries:
            if delivery.state != RELEASED:
                again.put(delivery)
        for delivery in deliveries:
            if delivery.state == RELEASED:
                output.send_release(delivery.packet_id)
            elif output.writable and self._window(output) > 0:
                self._send_first(output, again, inflight)
        if again.count == 0:
            self._again = None

    def _send_first(self, output: SessionOutput, again: Again, inflight: InFlight) -> None:
        delivery = again.next()
        if delivery is None:
            return
        packet_id, flags = delivery.packet_id, delivery.qos << 1 | 0x08
        retain, identifiers = delivery.retain, delivery.identifiers
        if not output.send_publish(delivery.message, flags, packet_id, retain, identifiers):
            inflight.remove(packet_id)
            self._unsend(delivery)

    def _send_again(self, output: SessionOutput, again: Again) -> None:
        """Goes on with what `_resend` has left."""
        inflight = self.inflight
        while again.count and inflight is not None:
            if not output.writable or self._window(output) <= 0:
                return
            self._send_first(output, again, inflight)
        self._again = None

    def _not_again(self, delivery: Delivery) -> None:
        """The client has settled a delivery, also if this connection has not been sent it."""
        if self._again is not None:
            self._again.take_out(delivery)

    def detach(self) -> None:
        """Handles the loss of the connection: passes on what other members of shared subscriptions can take
        now, and drops queued QoS 0 messages."""
        self.output = None
        if self._again is not None:
            self._again.clear()
            self._again = None
        queue = self._queue
        if queue is not None:
            self.pass_on(queue.shares())
            queue.keep_promised()
            if not len(queue):
                self._queue = None

    # --- shared subscriptions

    def pass_on(self, shares: list[bytes]) -> None:
        """Gives the queued messages of those `shares` that have another connected member to that one, unless
        they may have been sent."""
        queue, hub = self._queue, self._hub
        wanted = [share for share in shares if hub.shares.others_online(share, self)]
        if queue is None or not wanted:
            return
        for delivery in queue.take_unsent(wanted):
            hub.shares.hand_on(delivery, self.record if self.record is not None else delivery.creditor)
        if not len(queue):
            self._queue = None

    def leave_behind(self) -> list[Delivery]:
        """Returns the unsettled messages of shared subscriptions that another member is given when the
        session ends: all but those of QoS 2 that the client may have [MQTT-4.8.2]. Settles these."""
        found: list[Delivery] = []
        for delivery in self.unsettled():
            if not delivery.share:
                continue
            if delivery.qos < 2 or (delivery.state == QUEUED and not delivery.sent):
                found.append(delivery)
            elif delivery.state == SENT:
                self._settle(delivery)
        return found

    def clear(self) -> None:
        """Ends the session and drops all deliveries."""
        self.ended = True
        self._queue = None
        self.inflight = None
        self._again = None
        self.incoming = None

    # --- QoS 2 publishes of the client

    def has_id(self, packet_id: int) -> bool:
        """Whether the client has not released its publish with that packet id."""
        return self.incoming is not None and packet_id in self.incoming

    def take_id(self, packet_id: int) -> None:
        """Records the packet id of a publish."""
        if self.incoming is None:
            self.incoming = set()
        self.incoming.add(packet_id)
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None:
            journal.taken(record, packet_id)

    def give_id_back(self, packet_id: int) -> None:
        """Forgets the packet id of a publish."""
        if self.incoming is not None:
            self.incoming.discard(packet_id)
        journal, record = self._hub.journal, self.record
        if journal is not None and record is not None:
            journal.released(record, packet_id)

    # --- from the journal

    def restore(self, delivery: Delivery) -> None:
        """Restores a delivery from the journal. Called in order."""
        if delivery.state == QUEUED:
            self._append(delivery)
        else:
            self._flight().restore(delivery)

    def unsettled(self) -> list[Delivery]:
        """Returns all deliveries in flight or queued, in order."""
        found = self.inflight.all() if self.inflight is not None else []
        if self._queue is not None:
            found += self._queue.all()
        return found
