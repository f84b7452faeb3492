"""The acknowledgements of a client: of what it was sent, and of QoS 2 publishes of its own."""

from __future__ import annotations

from . import codec, session_table
from .codec import protocol_error
from .codec_packets import Ack
from .session_connection import ConnectionState
from .session_publishing import MqttCounting
from .session_state import SessionState


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
