"""One connection of the MQTT face, without I/O: all packets but publishes, and the connection's end.

`receive(data, now)` processes a whole chunk per call: `session_input` splits it into packets and handles the
publishes among them. Output is gathered in `SessionOutput` until the turn of the event loop ends. `now` is in
seconds on the loop's clock; `hub.wall` is the time of day, which the asyncio side updates.
"""

from __future__ import annotations

from typing import Final

from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import V5, V311, MqttError, clause, protocol_error
from .codec_packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Ping,
    Suback,
    Subscribe,
    Unsubscribe,
    decode,
    encode,
)
from .codec_properties import NONE, Properties
from .session_input import MqttCounting, SessionInput, Steps, is_own
from .session_output import Outputs
from .session_state import SessionState
from .sessions import Opened, Sessions, idle_limit
from .subscribing import Granting, Removing, for_bridge

_PINGRESP: Final = encode(Ping(codec.PINGRESP), V311)


def _lasts(connect: Connect) -> bool:
    """Whether the session outlives its connection and so must be stored."""
    if connect.version == V311:
        return not connect.clean_start
    return bool(connect.properties.session_expiry)


class Session(SessionInput):
    """The state of one connection."""

    def __init__(self, sessions: Sessions, outputs: Outputs, counters: MqttCounting, now: float) -> None:
        super().__init__(sessions, outputs, counters, now)
        self.idle_seconds = 0.0
        self.address = ""  # of the client, as the limits on log-ins count it
        self._asks: Connect | None = None  # while its password is checked
        self._sessions = sessions
        self._bridge = False

    # --- packets

    def _packet(self, first: int, data: bytes, body: int, stop: int, now: float) -> None:
        kind = first >> 4
        action = session_table.ALLOWED[self.phase].get(kind, 0)
        if action == 0:
            raise protocol_error(session_table.REFUSED[self.phase][kind], f"{codec.NAMES[kind]} now")
        packet = decode(first, data[body:stop], self.version)
        self._counters.count(codec.NAMES[kind])
        if isinstance(packet, Ack):
            self._answered(packet, action)
        elif isinstance(packet, Connect):
            self._connect(packet, now)
        elif isinstance(packet, Subscribe):
            self._subscribe(packet)
        elif isinstance(packet, Unsubscribe):
            self._unsubscribe(packet)
        elif isinstance(packet, Ping):
            self._writer().write(_PINGRESP)
        elif isinstance(packet, Disconnect):
            self._leave(packet, now)
        elif isinstance(packet, Auth):
            raise protocol_error("MQTT-4.12.0-6", "AUTH without an authentication method")

    def _connect(self, connect: Connect, now: float) -> None:
        self.version = connect.version
        self._bridge = connect.bridge
        passwords = self._settings.passwords
        if passwords is None or connect.properties.auth_method is not None:
            self._admit(connect, now)
            return
        self.phase = session_table.CHECKING
        self._asks = connect
        name, password = connect.username or "", connect.password
        secret = passwords.secret(name)
        if password is None:
            self.checked(Outcome.WRONG)
        else:
            self._sessions.log_ins.check(self.address, name, password, secret, self)

    def checked(self, outcome: Outcome) -> None:
        """Implements `log_ins.Applicant`: goes on with CONNECT, and with what came after it."""
        connect, self._asks = self._asks, None
        if connect is None or self.phase != session_table.CHECKING:
            return
        now = self.last_activity
        try:
            if outcome is Outcome.WRONG:
                raise MqttError(codec.BAD_CREDENTIALS, "3.1.4", "user name or password are wrong")
            if outcome is Outcome.BUSY:
                raise MqttError(codec.SERVER_BUSY, "3.1.4", "too many log-ins wait: try again")
            self._admit(connect, now)
        except MqttError as error:
            self.fail(error, now)
            return
        if self._partial is not None:
            self.receive(b"", now)

    def _admit(self, connect: Connect, now: float) -> None:
        self.phase = session_table.OPEN
        given = connect.properties
        self._problems = given.request_problems != 0
        self.max_packet = given.maximum_packet_size or self.max_packet
        refusal = self._refusal(connect)
        if refusal is not None:
            raise refusal
        self.idle_seconds = idle_limit(self._keep_alive(connect))
        self.window = given.receive_maximum or (
            65535 if connect.version == V5 else self._settings.send_maximum
        )
        self._alias_maximum = given.topic_alias_maximum or 0
        self.takes_runs = not given.maximum_packet_size and not self._alias_maximum
        opened = self._sessions.open(self, connect, now)
        self.state = opened.state
        answer = self._accepted(connect, opened)
        if not self.fits(answer):
            self.failure = "the CONNACK exceeds the client's Maximum Packet Size"
            self.phase = session_table.CLOSED
            self.closing = True
            self.writable = False
            self._sessions.closed(self, now, with_will=False)
            self.mark()
            return
        self.send(answer)
        if self.idle_seconds:
            self._sessions.watch_idle(self, now + self.idle_seconds)
        if opened.present:
            opened.state.resume(self)
            self._sessions.moved(opened.state)

    def _accepted(self, connect: Connect, opened: Opened) -> Connack:
        """Returns the CONNACK, without what the client can do without if it is too large for the client."""
        welcome = self._welcome(connect, opened.assigned)
        answer = Connack(opened.present, 0, welcome)
        if self.fits(answer):
            return answer
        least = Properties(
            server_keep_alive=welcome.server_keep_alive,
            session_expiry=welcome.session_expiry,
            assigned_client_id=welcome.assigned_client_id,
        )
        return Connack(opened.present, 0, NONE if least == NONE else least)

    def _keep_alive(self, connect: Connect) -> int:
        """Returns the keep-alive in seconds. Only version 5 can be told another value than it asked for."""
        most = self._settings.max_keep_alive
        asked = connect.keep_alive
        if connect.version != V5 or most >= 0xFFFF:
            return asked
        return min(asked, most) if asked else most

    def _refusal(self, connect: Connect) -> MqttError | None:
        """Returns the error that refuses the client, or None if it is accepted."""
        if not connect.client_id and connect.version == V311 and not connect.clean_start:
            return MqttError(codec.BAD_CLIENT_ID, "MQTT-3.1.3-8", "a durable session needs a client id")
        if connect.properties.auth_method is not None:
            return MqttError(codec.BAD_AUTH_METHOD, "MQTT-4.12.0-1", "no authentication method is supported")
        if connect.will is not None and is_own(connect.will.topic):
            return MqttError(codec.BAD_TOPIC, "4.7.2", "topics below $SYS are the server's own")
        most = self._settings.max_levels
        if connect.will is not None and connect.will.topic.count(b"/") >= most:
            return MqttError(codec.BAD_TOPIC, "4.7.3", f"a topic of more than {most} levels")
        if self._sessions.connected >= self._settings.max_connections:
            return MqttError(codec.SERVER_BUSY, "4.13", "client limit reached")
        journal = self._hub.journal
        if journal is not None and journal.failing and _lasts(connect):
            return MqttError(
                codec.SERVER_UNAVAILABLE, "4.13", "no durable session while the disk refuses writes"
            )
        if self._sessions.full and not self._sessions.knows(connect):
            return MqttError(codec.QUOTA_EXCEEDED, "4.13", "session limit reached")
        return None

    def _welcome(self, connect: Connect, assigned: bool) -> Properties:
        state = self.state
        if connect.version != V5 or state is None:
            return NONE
        asked = connect.properties.session_expiry or 0
        keep_alive = self._keep_alive(connect)
        return Properties(
            server_keep_alive=keep_alive if keep_alive != connect.keep_alive else None,
            session_expiry=state.expiry if state.expiry != asked else None,
            assigned_client_id=state.client_id if assigned else None,
            receive_maximum=self._settings.receive_maximum,
            topic_alias_maximum=self._settings.topic_alias_maximum,
            maximum_packet_size=self._largest,
        )

    # --- acknowledgements by the client

    def _acknowledgements(self, data: bytes, position: int, end: int) -> int:
        """Handles all PUBACKs that arrive in sending order, or else one. Returns the next packet's offset."""
        state = self.state
        assert state is not None
        count = state.acknowledged_row(data, position, end)
        if count == 0:
            self._acknowledged(data[position + 2] << 8 | data[position + 3])
            return position + 4
        self._counters.acks_in += count
        state.pump()
        return position + 4 * count

    def _acknowledged(self, packet_id: int) -> None:
        self._counters.acks_in += 1
        state = self.state
        if packet_id == 0:
            raise protocol_error("MQTT-2.2.1-3", "packet identifier 0")
        if state is not None and state.acknowledged(packet_id):
            state.pump()

    def _answered(self, packet: Ack, action: int) -> None:
        state = self.state
        assert state is not None
        packet_id = packet.packet_id
        if action == session_table.ACKNOWLEDGES:
            self._acknowledged(packet_id)
        elif action == session_table.RECEIVES:
            if state.received(packet_id, packet.reason >= 0x80):
                self.send_release(packet_id)
            elif packet.reason < 0x80:
                self.refuse(codec.PUBREL, packet_id, codec.PACKET_ID_NOT_FOUND)
            state.pump()
        elif action == session_table.COMPLETES:
            if state.completed(packet_id):
                state.pump()
        else:
            self._released(state, packet_id)

    def _released(self, state: SessionState, packet_id: int) -> None:
        incoming = state.incoming
        if incoming is None or packet_id not in incoming:
            self.refuse(codec.PUBCOMP, packet_id, codec.PACKET_ID_NOT_FOUND)
            return
        self._give_id_back(state, packet_id)
        self.send_ack(codec.PUBCOMP, packet_id)

    # --- subscriptions

    def _subscribe(self, packet: Subscribe) -> None:
        state = self.state
        assert state is not None
        if self._bridge:
            packet = for_bridge(packet)
        self._check_answer(codec.SUBACK, len(packet.filters))
        self._begin(Granting(self, self._sessions, state, packet))

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        state = self.state
        assert state is not None
        self._check_answer(codec.UNSUBACK, len(packet.filters))
        self._begin(Removing(self, self._sessions, state, packet))

    def _check_answer(self, kind: int, filters: int) -> None:
        """Raises MqttError before anything is done if the answer will be too large for the client."""
        if not self.fits(Suback(kind, 1, bytes(filters))):
            raise MqttError(
                codec.PACKET_TOO_LARGE,
                "MQTT-3.1.2-24",
                f"the answer to {filters} filters exceeds the client's Maximum Packet Size",
            )

    def _begin(self, steps: Steps) -> None:
        if not steps.step():
            self._steps = steps

    # --- closing

    def _leave(self, packet: Disconnect, now: float) -> None:
        """Handles a DISCONNECT. Publishes the will only if the client requests it [MQTT-3.14.4-3]."""
        state = self.state
        expiry = packet.properties.session_expiry
        if expiry is not None and state is not None:
            if expiry and state.expiry == 0:
                raise protocol_error("3.14.2.2.2", "DISCONNECT sets a session expiry and CONNECT set none")
            self._sessions.set_expiry(state, min(expiry, self._settings.max_session_expiry))
        self.phase = session_table.CLOSED
        self.closing = True
        self.writable = False
        self._sessions.closed(self, now, with_will=packet.reason != 0)
        self.mark()

    def fail(self, error: MqttError, now: float) -> None:
        """Ends the connection after an error, with the reason as far as the version allows."""
        if self.phase == session_table.CLOSED:
            return
        self.failure = f"{error.detail} [{clause(error.rule, self.version)}]"
        if self.state is None:
            self._refuse_connect(error)
        else:
            self.send_disconnect(error.reason, self.failure)
        self.phase = session_table.CLOSED
        self._sessions.closed(self, now, with_will=True)

    def _refuse_connect(self, error: MqttError) -> None:
        """Sends a CONNACK with the reason if the client's version has a code for it."""
        if self.version == V5:
            packet = encode(Connack(False, error.reason, self._explained(self.failure)), V5)
            if len(packet) > self.max_packet:
                packet = encode(Connack(False, error.reason), V5)
            if len(packet) <= self.max_packet:
                self._writer().write(packet)
        elif error.reason in codec.RETURN_CODES:
            self._writer().write(encode(Connack(False, codec.RETURN_CODES[error.reason]), V311))
        self.closing = True
        self.writable = False
        self.mark()

    def disconnect(self, reason: int, detail: str) -> None:
        """Ends the connection on behalf of the server."""
        if self.phase == session_table.CLOSED:
            return
        self.failure = detail
        self.phase = session_table.CLOSED
        self.send_disconnect(reason, detail if self._problems else "")

    def lost(self, now: float) -> None:
        """Handles the loss of the connection."""
        self.phase = session_table.CLOSED
        self.closing = True
        self.writable = False
        self._sessions.closed(self, now, with_will=True)

    def check_idle(self, now: float) -> float:
        """Ends the connection if it was idle too long. Else returns when to check again, 0.0 for never."""
        if not self.idle_seconds:
            return 0.0
        at = self.last_activity + self.idle_seconds
        if at > now:
            return at
        detail = "no packet within one and a half times the keep-alive"
        self.fail(MqttError(codec.KEEP_ALIVE_TIMEOUT, "MQTT-3.1.2-22", detail), now)
        return 0.0

    def end_unknown(self, now: float) -> None:
        """Ends a connection without a complete CONNECT in time. Part of a CONNECT does not count."""
        self.fail(MqttError(codec.KEEP_ALIVE_TIMEOUT, "3.1.4", "no CONNECT received in time"), now)
