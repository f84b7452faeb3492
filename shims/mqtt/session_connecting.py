"""CONNECT: the log-in of a client, whether it is admitted, and what it is told."""

from __future__ import annotations

import msgspec

from treecast.middleware.model.principal import Proof
from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import V5, V311, MqttError
from .codec_packets import Connack, Connect
from .codec_properties import NONE, Properties
from .reviewing import prune
from .session_connection import ConnectionState
from .session_publishing import is_own
from .sessions import Opened, Sessions, idle_limit


def _lasts(connect: Connect) -> bool:
    """Whether the session outlives its connection and so must be stored."""
    if connect.version == V311:
        return not connect.clean_start
    return bool(connect.properties.session_expiry)


class Connecting:
    """The part of a session that takes CONNECT."""

    def __init__(self, connection: ConnectionState, sessions: Sessions) -> None:
        self._connection = connection
        self._output = connection.output
        self._sessions = sessions
        self._settings = sessions.settings
        self._asks: Connect | None = None  # while its password is checked

    def connect(self, connect: Connect, now: float) -> None:
        """Handles a CONNECT, or has its password checked first."""
        self._output.version = connect.version
        self._connection.bridge = connect.bridge
        if not self._sessions.logs_in or connect.properties.auth_method is not None:
            self._admit(connect, now)
            return
        if connect.password is None and self._connection.certified:
            self._by_certificate(connect, now)
            return
        self._output.phase = session_table.CHECKING
        self._asks = connect
        name, password = connect.username or "", connect.password
        secret = self._sessions.secret(name, self._connection.address)
        if password is None:
            self.checked(Outcome.WRONG, now)
        else:
            self._sessions.log_ins.check(self._connection.address, name, password, secret, self._output.edge)

    def _by_certificate(self, connect: Connect, now: float) -> None:
        """Admits the user whom the certificate names. Raises NOT_AUTHORIZED if there is none of the name, or
        if the client claims another one."""
        user = self._connection.certified
        known = self._sessions.identities.admits(user, self._connection.address)
        if not known or connect.username not in (None, "", user):
            self._connection.rights.failed(
                user, self._connection.address, "no user of the certificate's name"
            )
            raise MqttError(codec.NOT_AUTHORIZED, "3.1.4", "no user has the name of the certificate")
        self._connection.rights.belong(user, self._connection.address, Proof.CERTIFICATE)
        self._admit(msgspec.structs.replace(connect, username=user), now)

    def checked(self, outcome: Outcome, now: float) -> bool:
        """Goes on with CONNECT after the check of its password. Returns whether there was one. Raises
        MqttError if the client is refused."""
        connect, self._asks = self._asks, None
        if connect is None or self._output.phase != session_table.CHECKING:
            return False
        if outcome is Outcome.WRONG:
            self._connection.rights.failed(connect.username or "", self._connection.address, "wrong password")
            raise MqttError(codec.BAD_CREDENTIALS, "3.1.4", "user name or password are wrong")
        if outcome is Outcome.BUSY:
            raise MqttError(codec.SERVER_BUSY, "3.1.4", "too many log-ins wait: try again")
        self._connection.rights.belong(connect.username or "", self._connection.address)
        self._admit(connect, now)
        return True

    def _admit(self, connect: Connect, now: float) -> None:
        connection, output, sessions = self._connection, self._output, self._sessions
        output.phase = session_table.OPEN
        given = connect.properties
        output.problems = given.request_problems != 0
        output.max_packet = given.maximum_packet_size or output.max_packet
        refusal = self._refusal(connect)
        if refusal is not None:
            raise refusal
        connection.idle_seconds = idle_limit(self._keep_alive(connect))
        output.window = given.receive_maximum or (
            65535 if connect.version == V5 else self._settings.send_maximum
        )
        output.alias_maximum = given.topic_alias_maximum or 0
        output.takes_runs = not given.maximum_packet_size and not output.alias_maximum
        opened = sessions.open(connection, connect, now)
        connection.state = opened.state
        if opened.present and connection.rights.identities.closed:
            prune(sessions, opened.state, connection.rights.granted)
        answer = self._accepted(connect, opened)
        if not output.fits(answer):
            output.failure = "the CONNACK exceeds the client's Maximum Packet Size"
            output.phase = session_table.CLOSED
            output.end()
            sessions.closed(connection, now, with_will=False)
            return
        output.send(answer)
        if connection.idle_seconds:
            sessions.watch_idle(connection, now + connection.idle_seconds)
        if opened.present:
            opened.state.resume(output)
            sessions.moved(opened.state)

    def _accepted(self, connect: Connect, opened: Opened) -> Connack:
        """Returns the CONNACK, without what the client can do without if it is too large for the client."""
        welcome = self._welcome(connect, opened.assigned)
        answer = Connack(opened.present, 0, welcome)
        if self._output.fits(answer):
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
        forbidden = self._forbidden_will(connect)
        if forbidden is not None:
            return forbidden
        most = self._settings.max_levels
        if connect.will is not None and connect.will.topic.count(b"/") >= most:
            return MqttError(codec.BAD_TOPIC, "4.7.3", f"a topic of more than {most} levels")
        if self._sessions.connected >= self._settings.max_connections:
            return MqttError(codec.SERVER_BUSY, "4.13", "client limit reached")
        journal = self._sessions.hub.journal
        if journal is not None and journal.failing and _lasts(connect):
            return MqttError(
                codec.SERVER_UNAVAILABLE, "4.13", "no durable session while the disk refuses writes"
            )
        if self._sessions.full and not self._sessions.knows(connect):
            return MqttError(codec.QUOTA_EXCEEDED, "4.13", "session limit reached")
        return None

    def _forbidden_will(self, connect: Connect) -> MqttError | None:
        rights = self._connection.rights
        if connect.will is None or not rights.identities.closed:
            return None
        topic = connect.will.topic
        return None if rights.may_publish(topic) else rights.refused_publish(topic)

    def _welcome(self, connect: Connect, assigned: bool) -> Properties:
        state = self._connection.state
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
            maximum_packet_size=self._settings.max_packet_bytes,
        )
