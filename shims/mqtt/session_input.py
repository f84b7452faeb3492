"""The input of a connection: splits chunks into packets, hands publishes to the hub and answers them.

`Session` handles all other packets. Consecutive QoS 0 or QoS 1 publishes with the same targets stay one run
of bytes (`Scan`). All others, and those that have to be handed over individually, are processed message by
message.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import Message, PubSub, Run, RunScan, Targets
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.errors import Fault
from treecast.middleware.wire.mqtt_publish import PUBLISH_0, PUBLISH_1, head_at

from . import codec, session_table
from .codec import BAD_TOPIC, V5, MqttError, malformed, protocol_error
from .codec_packets import announced_version
from .codec_publish import PublishProperties, read_publish_properties
from .codec_read import TooManyProperties, check_text, check_topic, read_length
from .session_output import Outputs, SessionOutput
from .session_state import SessionState
from .sessions import Sessions

_OWN: Final = b"$SYS/"
_BRIDGES: Final = b"$SYS/broker/connection/"  # Mosquitto's bridges publish their state below it
_PUBACK: Final = codec.PUBACK << 4
_REFUSALS: Final = {
    Fault.BATCH_TOO_LARGE: (codec.QUOTA_EXCEEDED, "the message is larger than the topic allows"),
    Fault.INVALID_RECORD: (codec.IMPLEMENTATION_ERROR, "the topic takes only records with a key"),
    Fault.LEADER_UNAVAILABLE: (codec.QUOTA_EXCEEDED, "too much waits for the topic's leader"),
}
_COSTLY: Final = 4096  # bytes of a packet that may take a large part of a pass of the loop
_PROGRESS: Final = 4096  # bytes of an unfinished packet that show a client as alive
_SUSPENDED: Final = 1 << 62  # as `_wanted`: everything that arrives waits
_OTHER_PROTOCOLS: Final = {b"GET ": "HTTP", b"POST": "HTTP", b"AMQP": "AMQP", b"SSH-": "SSH"}


class Scan(RunScan):
    """Finds runs among the publishes of a client that speaks `version`."""

    def __init__(self, hub: PubSub, version: int, largest: int, max_levels: int) -> None:
        super().__init__(hub.routes, version, largest)
        self._hub = hub
        self._version = version
        self._max_levels = max_levels

    def find(self, topic: bytes) -> Targets | None:
        try:
            check_name(topic, self._version, self._max_levels)
        except MqttError:
            return None
        return self._hub.targets(topic)


def is_own(topic: bytes) -> bool:
    """Whether only the server publishes to a topic."""
    return topic.startswith(_OWN) and not topic.startswith(_BRIDGES)


def check_name(topic: bytes, version: int, max_levels: int) -> None:
    """Checks the topic of a client's publish, with any alias resolved. Raises MqttError."""
    if not topic and version == V5:
        raise protocol_error("3.3.2.3.4", "an empty topic name without an alias")
    check_topic(topic)
    if is_own(topic):
        raise MqttError(BAD_TOPIC, "4.7.2", "topics below $SYS are the server's own")
    if topic.count(b"/") >= max_levels:
        raise MqttError(BAD_TOPIC, "4.7.3", f"a topic of more than {max_levels} levels")


class Steps:
    """Work of one packet that may take more than one pass of the loop."""

    def step(self) -> bool:
        """Works until it is done or the work budget is spent. Returns whether it is done.

        Raises MqttError.
        """
        return True


class MqttCounting:
    """Counts since the last `fold`: packets by type, with plain attributes for the most frequent types."""

    def __init__(self) -> None:
        self.publishes_in = 0
        self.acks_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._others: dict[str, int] = {}

    def count(self, packet: str) -> None:
        self._others[packet] = self._others.get(packet, 0) + 1

    def fold(self, into: FaceCounters) -> None:
        """Adds all counts to the counters that metrics read, and resets them."""
        into.bytes_in += self.bytes_in
        into.bytes_out += self.bytes_out
        requests = into.requests
        if self.publishes_in:
            requests["PUBLISH"] = requests.get("PUBLISH", 0) + self.publishes_in
        if self.acks_in:
            requests["PUBACK"] = requests.get("PUBACK", 0) + self.acks_in
        self.bytes_in = self.bytes_out = self.publishes_in = self.acks_in = 0
        if self._others:
            for packet, count in self._others.items():
                requests[packet] = requests.get(packet, 0) + count
            self._others = {}


class SessionInput(SessionOutput):
    """The receiving half of a connection. `state` is None until CONNECT. `failure` is the reason why it was
    ended, or ""."""

    def __init__(self, sessions: Sessions, outputs: Outputs, counters: MqttCounting, now: float) -> None:
        super().__init__(sessions.hub, outputs)
        self.failure = ""
        self.last_activity = now
        self.state: SessionState | None = None
        self.phase = session_table.NEW
        self._settings = sessions.settings
        self._counters = counters
        self._largest = sessions.settings.max_packet_bytes
        self._work = sessions.work
        self._steps: Steps | None = None  # what must be finished before the next packet
        self._progress = 0  # bytes of the unfinished packet that have counted as activity
        self._alias_topics: dict[int, bytes] | None = None
        self._partial: bytearray | None = None
        self._wanted = 0  # size at which the partial packet is complete, as far as known
        self._first = True

    # --- what `Session` does with it

    def _packet(self, first: int, data: bytes, body: int, stop: int, now: float) -> None:
        """Handles a packet that is no publish."""
        raise NotImplementedError

    def _acknowledgements(self, data: bytes, position: int, end: int) -> int:
        """Handles the PUBACK at `position`, and those that follow it. Returns the next packet's offset."""
        raise NotImplementedError

    def fail(self, error: MqttError, now: float) -> None:
        """Ends the connection after an error."""
        raise NotImplementedError

    def suspended(self) -> None:
        """Stops reading until `going_on`, and calls `go_on` in a later pass of the loop. Implemented by the
        asyncio side."""

    def going_on(self) -> None:
        """Resumes reading."""

    # --- receiving

    @property
    def memory(self) -> int:
        """The bytes of the packet that has arrived in part."""
        return 0 if self._partial is None else len(self._partial)

    def forget(self) -> None:
        """Drops all input: the client has gone."""
        self._partial = None
        self._alias_topics = None

    def receive(self, data: bytes, now: float) -> None:
        """Processes a chunk. A violation ends the connection after the answer that its rule prescribes.

        Whole packets count as activity, and so do `_PROGRESS` bytes of a packet that is still arriving.
        """
        partial = self._partial
        if partial is not None:
            if len(partial) + len(data) < self._wanted:
                partial += data
                self._progressed(len(partial), now)
                return
            data = b"".join([partial, data])
            self._partial = None
        if self._first:
            self._look_at_first(data)
        try:
            used = self._packets(data, now)
        except MqttError as error:
            if self.phase == session_table.NEW:
                self.version = announced_version(data)
            self.fail(error, now)
            return
        if used:
            self.last_activity = now
            self._progress = 0
        if self._steps is not None:
            self._wanted = _SUSPENDED
            self._partial = bytearray(data[used:])
            self.suspended()
        elif used < len(data) and self.phase != session_table.CLOSED:
            self._partial = bytearray(data[used:] if used else data)
            self._progressed(len(data) - used, now)

    def _progressed(self, size: int, now: float) -> None:
        """Counts an unfinished packet, of which `size` bytes have arrived, as activity if it has grown."""
        if size - self._progress >= _PROGRESS:
            self._progress = size
            self.last_activity = now

    def go_on(self, now: float) -> None:
        """Continues the work that was suspended, then the packets behind it."""
        steps, rest = self._steps, self._partial
        if steps is None or self.phase == session_table.CLOSED:
            return
        try:
            if not steps.step():
                self.suspended()
                return
        except MqttError as error:
            self._steps = None
            self.fail(error, now)
            return
        self._resumed()
        if rest:
            self.receive(bytes(rest), now)
        if self._steps is None:
            self.going_on()

    def _resumed(self) -> None:
        # A method of its own: a compiled caller would assume that `_steps` stays None while it receives.
        self._steps = self._partial = None

    def _look_at_first(self, data: bytes) -> None:
        self._first = False
        other = _OTHER_PROTOCOLS.get(data[:4])
        if data[:2] == b"\x16\x03":
            other = "TLS"
        if other is not None:
            self.failure = f"the client speaks {other}"
            self.phase = session_table.CLOSED
            self.closing = True
            self.mark()

    def _packets(self, data: bytes, now: float) -> int:
        """Processes the complete packets at the start of `data` and returns their size in bytes."""
        position = 0
        end = len(data)
        while position < end:
            if self.phase == session_table.CLOSED:
                return end
            if self.phase == session_table.CHECKING:
                self._wanted = 0
                return position
            first = data[position]
            size, body = head_at(data, position, end)
            if size < 0:
                read_length(data, position, end)  # raises if the length is malformed and not just cut off
                self._wanted = end - position + 1
                self._check_size(0, first)
                return position
            stop = body + size
            if stop - position > self._largest:
                raise self._too_large(stop - position)
            self._check_size(size, first)
            if stop > end:
                self._wanted = stop - position
                return position
            if size >= _COSTLY and self._costly(first, data, body, stop) and self._work.spent():
                self._steps = Steps()
                return position
            if self.phase != session_table.OPEN:
                self._packet(first, data, body, stop, now)
            elif first in (PUBLISH_1, PUBLISH_0):
                position = self._run(data, position, end)
                continue
            elif first >> 4 == codec.PUBLISH:  # hot path: the table allows PUBLISH and PUBACK
                self._publish(first, data, body, stop)
            elif first == _PUBACK and size == 2:
                position = self._acknowledgements(data, position, end)
                continue
            else:
                self._packet(first, data, body, stop, now)
                if self._steps is not None:
                    return stop
            position = stop
        return position

    def _costly(self, first: int, data: bytes, body: int, stop: int) -> bool:
        """Whether a large packet takes longer than its copy: any but a PUBLISH with few properties."""
        if first >> 4 != codec.PUBLISH:
            return True
        if self.version != V5 or body + 2 > stop:
            return False
        at = body + 2 + (data[body] << 8 | data[body + 1]) + (2 if first & 6 else 0)
        return at < stop and data[at] >= 0x80  # the length of the properties takes two bytes or more

    def _check_size(self, size: int, first: int) -> None:
        """Before CONNECT, raises MqttError for any other packet without waiting for its end, and for one that
        is larger than a CONNECT needs to be."""
        if self.phase != session_table.NEW:
            return
        if size > self._settings.max_connect_bytes:
            detail = f"a CONNECT of {size} bytes exceeds the limit of {self._settings.max_connect_bytes}"
            raise MqttError(codec.PACKET_TOO_LARGE, "3.2.2.2", detail)
        if first != codec.CONNECT << 4:
            if first >> 4 == codec.CONNECT:
                raise malformed("MQTT-2.1.3-1", f"CONNECT with flags {first & 0x0F:04b}")
            raise protocol_error("MQTT-3.1.0-1", f"{codec.NAMES[first >> 4]} before CONNECT")

    def _too_large(self, size: int) -> MqttError:
        detail = f"a packet of {size} bytes exceeds the limit of {self._largest}"
        return MqttError(codec.PACKET_TOO_LARGE, "3.1.2.11.4", detail)

    # --- runs

    def _run(self, data: bytes, position: int, end: int) -> int:
        """Publishes the run that starts at `position`, whose first packet is complete. Returns its end."""
        scan = Scan(self._hub, self.version, self._largest, self._settings.max_levels)
        scan.look(data, position, end)
        targets = scan.targets
        if scan.count == 0 or targets is None:
            return self._single(data, position, end)
        stop = scan.stop
        if data[position] == PUBLISH_0:
            run = scan.run(data, position)
            self._publish_run(run, targets)
            run.handed_over()
        elif scan.count > 1 and self._takes_promised(targets):
            run = scan.run(data, position)
            self._publish_run(run, targets)
            run.handed_over()
            self.send_acks(run.data)
        else:
            return self._each(data, position, stop)
        return stop

    def _publish_run(self, run: Run, targets: Targets) -> None:
        self._counters.publishes_in += run.count
        if targets.count:
            self._hub.publish_run(run, targets, self.state)
        else:
            self._hub.unmatched += run.count

    def _takes_promised(self, targets: Targets) -> bool:
        """Whether a QoS 1 run can be handled as a whole with the same result as message by message."""
        journal = self._hub.journal
        if journal is not None and journal.failing:
            return False
        if targets.count == 0:
            return self.version != V5  # version 5 reports missing subscribers per message
        return self._hub.takes_promised(targets, self.state)

    def _each(self, data: bytes, position: int, stop: int) -> int:
        """Handles the publishes up to `stop` one by one until one ends the connection. Returns the end."""
        while position < stop and self.phase == session_table.OPEN:
            position = self._single(data, position, stop)
        return position

    def _single(self, data: bytes, position: int, end: int) -> int:
        size, body = head_at(data, position, end)
        self._publish(data[position], data, body, body + size)
        return body + size

    # --- message by message

    def _publish(self, first: int, data: bytes, body: int, stop: int) -> None:
        qos = first >> 1 & 3
        if qos == 3:
            raise malformed("MQTT-3.3.1-4", "QoS 3")
        if qos == 0 and first & 8:
            raise malformed("MQTT-3.3.1-2", "a duplicate of QoS 0")
        at = body + 2
        if at > stop:
            raise malformed("2.1.4", "the packet ends within PUBLISH")
        begin = at + (data[body] << 8 | data[body + 1])
        topic = data[at:begin]
        packet_id = 0
        if qos:
            if begin + 2 > stop:
                raise malformed("2.1.4", "the packet ends within PUBLISH")
            packet_id = data[begin] << 8 | data[begin + 1]
            if packet_id == 0:
                raise protocol_error("MQTT-2.2.1-3", "packet identifier 0")
            begin += 2
        if begin > stop:
            raise malformed("2.1.4", "a topic name is longer than its packet")
        self._counters.publishes_in += 1
        message = Message(topic, b"", qos, bool(first & 1))
        text = False
        if self.version == V5:
            try:
                begin, text = self._properties(message, data, begin, stop)
            except TooManyProperties as error:
                if not qos:
                    raise
                self.refuse(codec.PUBACK if qos == 1 else codec.PUBREC, packet_id, error.reason, error.detail)
                return
        message.payload = data[begin:stop]
        targets = self._hub.routes.get(message.topic)
        if targets is None:
            check_name(message.topic, self.version, self._settings.max_levels)
            targets = self._hub.targets(message.topic)
        if text and not self._is_text(message, packet_id):
            return
        self._hand_over(message, targets, packet_id)

    def _properties(self, message: Message, data: bytes, begin: int, stop: int) -> tuple[int, bool]:
        """Reads version 5 properties into `message`.

        Returns (the offset of the payload, whether it is declared to be UTF-8).
        """
        if begin < stop and data[begin] == 0:
            return begin + 1, False
        size, at = read_length(data, begin - 1, stop)
        if size < 0 or at + size > stop:
            raise malformed("2.1.4", "the properties are longer than the packet")
        found = read_publish_properties(data, at, at + size)
        message.properties = found.passed_on
        if found.expiry >= 0:
            message.expires_at = self._hub.wall + found.expiry
        if found.alias:
            message.topic = self._aliased(message.topic, found)
        return at + size, found.text

    def _aliased(self, topic: bytes, found: PublishProperties) -> bytes:
        """Returns the topic of an alias. If `topic` is not empty, assigns the alias to it first."""
        alias = found.alias
        if alias > self._settings.topic_alias_maximum:
            raise MqttError(codec.BAD_TOPIC_ALIAS, "MQTT-3.3.2-9", f"topic alias {alias}")
        topics = self._alias_topics
        if topics is None:
            topics = self._alias_topics = {}
        if topic:
            check_topic(topic)
            topics[alias] = topic
            return topic
        if alias not in topics:
            raise protocol_error("3.3.2.3.4", f"topic alias {alias} is unknown")
        return topics[alias]

    def _is_text(self, message: Message, packet_id: int) -> bool:
        """Whether a payload declared to be UTF-8 is. If not, refuses the message or raises MqttError."""
        try:
            check_text(message.payload.replace(b"\0", b""))
        except MqttError:
            if message.qos == 0:
                raise MqttError(
                    codec.BAD_PAYLOAD_FORMAT, "3.3.2.3.2", "the payload is not valid UTF-8"
                ) from None
            kind = codec.PUBACK if message.qos == 1 else codec.PUBREC
            self.refuse(kind, packet_id, codec.BAD_PAYLOAD_FORMAT, "the payload is not valid UTF-8")
            return False
        return True

    def _hand_over(self, message: Message, targets: Targets, packet_id: int) -> None:
        """Hands a message to the hub and sends the answer to QoS 1 and 2.

        A QoS 2 duplicate is only answered.
        """
        state = self.state
        assert state is not None
        journal = self._hub.journal
        if message.qos and journal is not None and journal.failing:
            raise MqttError(codec.IMPLEMENTATION_ERROR, "4.13", "the disk refuses")
        if message.qos == 2 and not self._take_id(state, packet_id):
            self.send_ack(codec.PUBREC, packet_id)
            return
        if message.retain:
            count = self._hub.publish_retained(message, targets, state)
        else:
            count = self._hub.publish(message, targets, state) if targets.count else 0
        if count == 0:
            self._hub.unmatched += 1
        if message.qos == 0:
            return
        kind = codec.PUBACK if message.qos == 1 else codec.PUBREC
        refusal = self._hub.refusal if count else None
        if refusal is not None:
            self._refused(state, kind, packet_id, refusal)
        elif count or self.version != V5:
            self.send_ack(kind, packet_id)
        else:
            self.refuse(kind, packet_id, codec.NO_MATCHING_SUBSCRIBERS)

    def _refused(self, state: SessionState, kind: int, packet_id: int, refusal: Fault) -> None:
        """Answers a message that its topic has refused.

        Version 3.1.1 has no negative acknowledgement. A message that may be taken later ends the connection,
        so that the client repeats it. A message that is never taken is acknowledged, as by Mosquitto: the
        client would repeat it without end, and nothing behind it.
        """
        reason, detail = _REFUSALS.get(refusal, (codec.UNSPECIFIED, refusal.value))
        passes = refusal is Fault.LEADER_UNAVAILABLE
        if kind == codec.PUBREC and (passes or self.version == V5):  # the id is free again [MQTT-4.3.3-9]
            self._give_id_back(state, packet_id)
        if passes and self.version != V5:
            raise MqttError(reason, "3.3.5", detail)
        self.refuse(kind, packet_id, reason, detail)

    def _take_id(self, state: SessionState, packet_id: int) -> bool:
        """Whether a QoS 2 publish is new. Records its packet id if it is."""
        incoming = state.incoming
        if incoming is None:
            incoming = state.incoming = set()
        if packet_id in incoming:
            return False
        if len(incoming) >= self._settings.receive_maximum and self.version == V5:
            raise MqttError(
                codec.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-7", "too many unfinished QoS 2 messages"
            )
        incoming.add(packet_id)
        journal, record = self._hub.journal, state.record
        if journal is not None and record is not None:
            journal.taken(record, packet_id)
        return True

    def _give_id_back(self, state: SessionState, packet_id: int) -> None:
        """Forgets the packet id of a QoS 2 publish."""
        incoming = state.incoming
        if incoming is not None:
            incoming.discard(packet_id)
        journal, record = self._hub.journal, state.record
        if journal is not None and record is not None:
            journal.released(record, packet_id)
