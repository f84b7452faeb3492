"""The publishes of a client, which go to the hub and are answered; and its acknowledgements.

Consecutive QoS 0 or QoS 1 publishes with the same targets stay one run of bytes (`Scan`). All others, and
those that have to be handed over individually, are processed message by message.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import Message, PubSub, Run, RunScan, Targets
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.errors import Fault
from treecast.middleware.wire.mqtt_publish import PUBLISH_0, head_at

from . import codec, session_table
from .codec import BAD_TOPIC, V5, MqttError, malformed, protocol_error
from .codec_packets import Ack
from .codec_publish import PublishProperties, read_publish_properties
from .codec_read import TooManyProperties, check_text, check_topic, read_length
from .rights import TopicRights
from .session_connection import ConnectionState
from .session_state import SessionState
from .sessions import Sessions

_OWN: Final = b"$SYS/"
_BRIDGES: Final = b"$SYS/broker/connection/"  # Mosquitto's bridges publish their state below it
_REFUSALS: Final = {
    Fault.BATCH_TOO_LARGE: (codec.QUOTA_EXCEEDED, "the message is larger than the topic allows"),
    Fault.INVALID_RECORD: (codec.IMPLEMENTATION_ERROR, "the topic takes only records with a key"),
    Fault.LEADER_UNAVAILABLE: (codec.QUOTA_EXCEEDED, "too much waits for the topic's leader"),
}


class Scan(RunScan):
    """Finds runs among the publishes of a client that speaks `version`."""

    def __init__(
        self, hub: PubSub, version: int, largest: int, max_levels: int, rights: TopicRights | None = None
    ) -> None:
        """`rights`: those that have to be asked for each topic, which then is not found in the routes."""
        known: dict[bytes, Targets] = {}
        super().__init__(hub.routes.known if rights is None else known, version, largest)
        self._rights = rights
        self._hub = hub
        self._version = version
        self._max_levels = max_levels

    def find(self, topic: bytes) -> Targets | None:
        try:
            check_name(topic, self._version, self._max_levels)
        # None ends the run: the publish is then handled alone, which raises the same error at its place in
        # order.
        except MqttError:
            return None
        if self._rights is not None and not self._rights.may_publish(topic):
            return None
        return self._hub.routes.targets(topic)


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


class Publishing:
    """The part of a session that takes PUBLISH."""

    def __init__(self, connection: ConnectionState, sessions: Sessions, counters: MqttCounting) -> None:
        self._connection = connection
        self._output = connection.output
        self._rights = connection.rights
        self._hub = sessions.hub
        self._settings = sessions.settings
        self._counters = counters
        self._alias_topics: dict[int, bytes] | None = None

    def forget(self) -> None:
        """Drops the topic aliases: the client has gone."""
        self._alias_topics = None

    # --- runs

    def run(self, data: bytes, position: int, end: int) -> int:
        """Publishes the run that starts at `position`, whose first packet is complete. Returns its end."""
        settings, rights = self._settings, self._rights if self._rights.identities.closed else None
        scan = Scan(self._hub, self._output.version, settings.max_packet_bytes, settings.max_levels, rights)
        scan.look(data, position, end)
        targets = scan.targets
        if scan.count == 0 or targets is None:
            return self._single(data, position, end)
        stop = scan.stop
        if data[position] == PUBLISH_0:
            run = scan.run(data, position)
            self._publish_run(run, targets)
            run.handed_over()
        # A run of QoS 0 needs no answers. One of QoS 1 is taken whole only if all its answers are the same.
        elif scan.count > 1 and self._takes_promised(targets):
            run = scan.run(data, position)
            self._publish_run(run, targets)
            run.handed_over()
            self._output.send_acks(run.data)
        else:
            return self._each(data, position, stop)
        return stop

    def _publish_run(self, run: Run, targets: Targets) -> None:
        self._counters.publishes_in += run.count
        if targets.count:
            self._hub.publish_run(run, targets, self._connection.state)
        else:
            self._hub.unmatched += run.count

    def _takes_promised(self, targets: Targets) -> bool:
        """Whether a QoS 1 run can be handled as a whole with the same result as message by message."""
        journal = self._hub.journal
        if journal is not None and journal.failing:
            # Message by message, the first one ends the connection with the reason.
            return False
        if targets.count == 0:
            return self._output.version != V5  # version 5 reports missing subscribers per message
        return self._hub.takes_promised(targets, self._connection.state)

    def _each(self, data: bytes, position: int, stop: int) -> int:
        """Handles the publishes up to `stop` one by one until one ends the connection. Returns the end."""
        # An error in the middle ends the connection: what its client sent behind it is not published.
        while position < stop and self._output.phase == session_table.OPEN:
            position = self._single(data, position, stop)
        return position

    def _single(self, data: bytes, position: int, end: int) -> int:
        size, body = head_at(data, position, end)
        self.single(data[position], data, body, body + size)
        return body + size

    # --- message by message

    def single(self, first: int, data: bytes, body: int, stop: int) -> None:
        qos = first >> 1 & 3
        if qos == 3:
            raise malformed("MQTT-3.3.1-4", "QoS 3")
        # A duplicate is a second attempt, and QoS 0 has none.
        if qos == 0 and first & 8:
            raise malformed("MQTT-3.3.1-2", "a duplicate of QoS 0")
        at = body + 2
        if at > stop:
            raise malformed("2.1.4", "the packet ends within PUBLISH")
        begin = at + (data[body] << 8 | data[body + 1])
        topic = data[at:begin]
        # A slice that reaches beyond the packet is caught below, by the one check for all lengths.
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
        if self._output.version == V5:
            try:
                begin, text = self._properties(message, data, begin, stop)
            except TooManyProperties as error:
                if not qos:
                    # QoS 0 has no answer that could carry the reason, so the connection does.
                    raise
                self._output.refuse(
                    codec.PUBACK if qos == 1 else codec.PUBREC, packet_id, error.reason, error.detail
                )
                return
        message.payload = data[begin:stop]
        # A topic in the routes was checked when it was put there: most publishes need no check of their name.
        targets = self._hub.routes.known.get(message.topic)
        if targets is None:
            check_name(message.topic, self._output.version, self._settings.max_levels)
            targets = self._hub.routes.targets(message.topic)
        if self._rights.identities.closed and not self._may_publish(message, packet_id):
            return
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
            message.expires_at = self._hub.clock.wall + found.expiry
        if found.alias:
            # Before routing and rights, which must see the real topic.
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

    def _may_publish(self, message: Message, packet_id: int) -> bool:
        """Whether the client has the right to publish a message. If not, refuses it; one of QoS 0 has no
        answer and is counted."""
        if self._rights.may_publish(message.topic):
            return True
        self._hub.counters.forbidden += 1
        if message.qos:
            error = self._rights.refused_publish(message.topic)
            kind = codec.PUBACK if message.qos == 1 else codec.PUBREC
            self._output.refuse(kind, packet_id, error.reason, error.detail)
        return False

    def _is_text(self, message: Message, packet_id: int) -> bool:
        """Whether a payload declared to be UTF-8 is. If not, refuses the message or raises MqttError."""
        try:
            # A payload may hold U+0000, which the check for topic names refuses.
            check_text(message.payload.replace(b"\0", b""))
        except MqttError:
            if message.qos == 0:
                raise MqttError(
                    codec.BAD_PAYLOAD_FORMAT, "3.3.2.3.2", "the payload is not valid UTF-8"
                ) from None
            kind = codec.PUBACK if message.qos == 1 else codec.PUBREC
            self._output.refuse(kind, packet_id, codec.BAD_PAYLOAD_FORMAT, "the payload is not valid UTF-8")
            return False
        return True

    def _hand_over(self, message: Message, targets: Targets, packet_id: int) -> None:
        """Hands a message to the hub and sends the answer to QoS 1 and 2.

        A QoS 2 duplicate is only answered.
        """
        state = self._connection.state
        assert state is not None
        journal = self._hub.journal
        if message.qos and journal is not None and journal.failing:
            raise MqttError(codec.IMPLEMENTATION_ERROR, "4.13", "the disk refuses")
        if message.qos == 2:
            if state.has_id(packet_id):
                # The same id before its PUBREL is the same message: it was published, and its PUBREC was
                # lost.
                self._output.send_ack(codec.PUBREC, packet_id)
                return
            self._take_id(state, packet_id)
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
        # No subscriber is no error. Version 5 can report it, and older clients just learn that the message
        # was taken.
        elif count or self._output.version != V5:
            self._output.send_ack(kind, packet_id)
        else:
            self._output.refuse(kind, packet_id, codec.NO_MATCHING_SUBSCRIBERS)

    def _refused(self, state: SessionState, kind: int, packet_id: int, refusal: Fault) -> None:
        """Answers a message that its topic has refused.

        Version 3.1.1 has no negative acknowledgement. A message that may be taken later ends the connection,
        so that the client repeats it. A message that is never taken is acknowledged, as by Mosquitto: the
        client would repeat it without end, and nothing behind it.
        """
        reason, detail = _REFUSALS.get(refusal, (codec.UNSPECIFIED, refusal.value))
        passes = refusal is Fault.LEADER_UNAVAILABLE
        if kind == codec.PUBREC and (
            passes or self._output.version == V5
        ):  # the id is free again [MQTT-4.3.3-9]
            state.give_id_back(packet_id)
        if passes and self._output.version != V5:
            # After the id is given back: the client repeats the message on its next connection, as a new one.
            raise MqttError(reason, "3.3.5", detail)
        self._output.refuse(kind, packet_id, reason, detail)

    def _take_id(self, state: SessionState, packet_id: int) -> None:
        """Records the packet id of a QoS 2 publish. Raises MqttError if too many are not released."""
        taken = len(state.incoming) if state.incoming is not None else 0
        # Clients of 3.1.1 never learned of a limit; the 65,535 packet ids bound them.
        if taken >= self._settings.receive_maximum and self._output.version == V5:
            raise MqttError(
                codec.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-7", "too many unfinished QoS 2 messages"
            )
        state.take_id(packet_id)


class Acknowledging:
    """The part of a session that takes PUBACK, PUBREC, PUBREL and PUBCOMP."""

    def __init__(self, connection: ConnectionState, counters: MqttCounting) -> None:
        self._connection = connection
        self._output = connection.output
        self._counters = counters

    def row(self, data: bytes, position: int, end: int) -> int:
        """Handles all PUBACKs that arrive in sending order, or else one. Returns the next packet's offset."""
        state = self._connection.state
        assert state is not None
        count = state.acknowledged_row(data, position, end)
        if count == 0:
            # The first PUBACK is out of order, or for a single message.
            self._acknowledged(state, data[position + 2] << 8 | data[position + 3])
            return position + 4
        self._counters.acks_in += count
        state.pump()
        return position + 4 * count

    def _acknowledged(self, state: SessionState, packet_id: int) -> None:
        self._counters.acks_in += 1
        if packet_id == 0:
            raise protocol_error("MQTT-2.2.1-3", "packet identifier 0")
        if state.acknowledged(packet_id):
            state.pump()

    def take(self, packet: Ack, action: int) -> None:
        """Handles one packet. `action` is that of `session_table`."""
        state, output = self._connection.state, self._output
        assert state is not None
        packet_id = packet.packet_id
        if action == session_table.ACKNOWLEDGES:
            self._acknowledged(state, packet_id)
        elif action == session_table.RECEIVES:
            if state.received(packet_id, packet.reason >= 0x80):
                output.send_release(packet_id)
            elif packet.reason < 0x80:
                output.refuse(codec.PUBREL, packet_id, codec.PACKET_ID_NOT_FOUND)
            state.pump()
        elif action == session_table.COMPLETES:
            if state.completed(packet_id):
                state.pump()
        elif state.has_id(packet_id):
            state.give_id_back(packet_id)
            output.send_ack(codec.PUBCOMP, packet_id)
        else:
            output.refuse(codec.PUBCOMP, packet_id, codec.PACKET_ID_NOT_FOUND)
