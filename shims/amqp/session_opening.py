"""The methods of channel 0: opening, authentication, heartbeats, blocking and closing of a connection.

States and actions are defined in `session_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pamqp import base, commands
from pamqp.common import FieldTable

from treecast.middleware.model.logs import Log
from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import AmqpError
from .session_channel import ChannelBase, Connection
from .session_host import AmqpHost, credentials
from .session_output import SessionOutput

_log = Log("treecast.amqp")

_EXTERNAL: Final = "EXTERNAL"
_Method = commands.Connection
# Clients of Celery below 5.7, and of Kombu: see `ConsumingChannel.set_prefetch`.
_RAISE_PREFETCH: Final = frozenset({"py-amqp"})
_CAPABILITIES: Final[FieldTable] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


class OpeningConnection(Connection):
    """The channel 0 part of a connection.

    `failure` is the reason why it was ended, or "". `name` is the connection name given by the client,
    `properties` all client properties. `ends` are the addresses of client and server, if any, and
    `opened_at` is the time of day, and `certified` is the user that the client's verified certificate names,
    or ""; the owner of the socket sets all three.
    """

    def __init__(self, host: AmqpHost, wake: Callable[[SessionOutput], None], now: float) -> None:
        super().__init__(host, wake)
        self.name = ""
        self.joined = False  # it was noted as an application
        self.properties: Mapping[str, object] = {}
        self.mechanism = ""
        self.address = ""  # of the client, as the limits on log-ins count it
        self._asks = ""  # the user whose password is checked
        self.ends: tuple[tuple[str, int], tuple[str, int]] = (("", 0), ("", 0))
        self.opened_at = 0.0
        self.certified = ""
        self.number = host.number_connection()
        self.channel_max = host.settings.channel_max
        self.heartbeat = 0
        self.phase = session_table.HEADER
        self.failure = ""
        self._wanted = 0  # size at which the partial input is complete, as far as known
        self._blocked = False
        self._last_in = now
        self._last_out = now

    def release(self, now: float) -> None:
        """Releases its channels and exclusive queues."""
        raise NotImplementedError

    def all_channels(self) -> list[ChannelBase]:
        raise NotImplementedError

    def lost(self, now: float) -> None:
        """Handles the loss of the connection."""
        raise NotImplementedError

    def _header(self, data: bytes) -> int:
        """Handles the protocol header. Answers any other header with the supported one and closes.

        Returns the number of bytes used.
        """
        begin = data[: len(codec.PROTOCOL_HEADER)]
        if codec.PROTOCOL_HEADER.startswith(begin):
            if len(begin) < len(codec.PROTOCOL_HEADER):
                self._wanted = len(codec.PROTOCOL_HEADER)
                return 0
            self.phase = session_table.STARTING
            self.send(0, _Method.Start(0, 9, self._server_properties(), self._mechanisms(), "en_US"))
            return len(begin)
        if begin == b"AMQP\x00\x01\x00\x00" or begin == b"AMQP\x03\x01\x00\x00":
            self.failure = "the client speaks AMQP 1.0, which is not served"
        else:
            self.failure = f"the client speaks another protocol: {begin!r}"
        self.writer().write(codec.PROTOCOL_HEADER)
        self._end()
        return len(data)

    def _on_connection(self, number: int, method: base.Frame, now: float) -> None:
        action = session_table.CONNECTION[self.phase].get(method.index)
        if number:
            raise AmqpError(codec.COMMAND_INVALID, f"{method.name} on channel {number}", method.index)
        if action is None:
            code = session_table.CONNECTION_REFUSED[self.phase]
            if code:
                raise AmqpError(code, f"{method.name} is not allowed in this state", method.index)
            return
        if action == "leave":
            self.release(now)
            self.send(0, _Method.CloseOk())
            self.left = True
            self._end()
        elif action == "closed":
            self._end()
        elif isinstance(method, _Method.StartOk):
            self._log_in(method)
        elif isinstance(method, _Method.TuneOk):
            self._tune(method)
        elif isinstance(method, _Method.Open):
            self._open(method)
        elif isinstance(method, _Method.UpdateSecret):
            self._renew(method)

    # --- opening

    def _server_properties(self) -> FieldTable:
        return {
            "product": "Treecast",
            "version": self.host.settings.version,
            "platform": "Python",
            "information": "https://github.com/treecast/treecast",
            "capabilities": _CAPABILITIES,
        }

    def _mechanisms(self) -> str:
        offered = self.host.access.mechanisms
        return " ".join((*offered, _EXTERNAL) if self.certified else offered)

    def _log_in(self, method: commands.Connection.StartOk) -> None:
        properties = method.client_properties or {}
        capabilities = properties.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.name = str(properties.get("connection_name", ""))
        self.lane = self.name or f"#{self.number}"
        self.properties = properties
        self.raises_prefetch = properties.get("product") in _RAISE_PREFETCH
        self.mechanism = mechanism = method.mechanism
        if mechanism not in self._mechanisms().split():
            detail = f"unknown authentication mechanism '{mechanism}'"
            raise AmqpError(codec.COMMAND_INVALID, detail, method.index)
        proof = _long_string(method, "response")
        access = self.host.access
        if mechanism == _EXTERNAL:
            self._authenticated(self.certified if access.knows(self.certified) else None)
            return
        given = credentials(mechanism, proof)
        secret = access.secret(given[0]) if given is not None else None
        if given is None or secret is None:
            self._authenticated(None if given is None else given[0])
            return
        self._asks = given[0]
        self.held = True
        self.host.log_ins.check(self.address, given[0], given[1], secret, self)

    def checked(self, outcome: Outcome) -> None:
        """Implements `log_ins.Applicant`. The owner of the socket goes on with what came meanwhile."""
        user, self._asks = self._asks, ""
        self.held = False
        if self.phase != session_table.STARTING:
            return
        if outcome is Outcome.BUSY:
            self._refuse_login("too many log-ins wait: try again")
        else:
            self._authenticated(user if outcome is Outcome.FITS else None)

    def _authenticated(self, user: str | None) -> None:
        """Goes on after the log-in of `user`, or refuses it if it is None or must not come from there."""
        if user is None or not self.host.access.may_come(user, self.local):
            self._refuse_login(
                f"Login was refused using authentication mechanism {self.mechanism}. "
                "For details see the broker logfile."
            )
            return
        self.user = user
        self.phase = session_table.TUNING
        asked = self.host.settings
        self.send(0, _Method.Tune(asked.channel_max, asked.frame_max, asked.heartbeat))

    def _refuse_login(self, detail: str) -> None:
        """Refuses a login: with connection.close if the client supports it, else by closing the socket."""
        error = AmqpError(codec.ACCESS_REFUSED, detail, _Method.StartOk.index)
        self.failure = error.text
        if self.capabilities.get("authentication_failure_close") is True:
            self._send_close(error)
            self.phase = session_table.CLOSING
        else:
            self._end()

    def _tune(self, method: commands.Connection.TuneOk) -> None:
        asked = self.host.settings
        self.frame_max = _negotiated("frame_max", method.frame_max, asked.frame_max, codec.FRAME_MIN)
        self.channel_max = _negotiated("channel_max", method.channel_max, asked.channel_max, 1)
        self.heartbeat = method.heartbeat
        self.phase = session_table.OPENING

    def _open(self, method: commands.Connection.Open) -> None:
        vhost = self.host.vhosts.get(method.virtual_host)
        if vhost is None:
            raise AmqpError(codec.NOT_ALLOWED, f"vhost {method.virtual_host} not found", method.index)
        if not self.host.access.may_open(self.user, method.virtual_host):
            detail = f"access to vhost '{method.virtual_host}' refused for user '{self.user}'"
            raise AmqpError(codec.NOT_ALLOWED, detail, method.index)
        self.vhost = vhost
        self.phase = session_table.OPEN
        self.send(0, _Method.OpenOk())
        self.joined = True
        self.host.applications.joined("amqp", self.name or self.user, self.ends[0][0])
        if self.host.alarm:
            self.block(self.host.alarm)

    def _renew(self, method: commands.Connection.UpdateSecret) -> None:
        if not self.host.access.renewed(self.user, _long_string(method, "new_secret")):
            raise AmqpError(codec.NOT_ALLOWED, "New secret was refused by one of the backends", method.index)
        for channel in self.all_channels():
            channel.forget_permissions()
        self.send(0, _Method.UpdateSecretOk())

    @property
    def blocked(self) -> bool:
        """Whether the client was notified that its publishes are not read."""
        return self._blocked

    # --- blocked publishers

    def block(self, reason: str) -> None:
        """Sends connection.blocked if the client supports it: its publishes will not be read."""
        if not self._blocked and self.capabilities.get("connection.blocked") is True:
            self._blocked = True
            self.send(0, _Method.Blocked(reason))

    def unblock(self) -> None:
        if self._blocked:
            self._blocked = False
            self.send(0, _Method.Unblocked())

    # --- heartbeats

    def tick(self, now: float) -> float:
        """Sends a heartbeat after half an interval without output. Ends the connection after two intervals
        without input.

        Returns when to check again, 0.0 for never.
        """
        if not self.heartbeat or self.phase == session_table.CLOSED:
            return 0.0
        if now - self._last_in >= 2 * self.heartbeat:
            self.failure = f"missed heartbeats from client, timeout: {self.heartbeat}s"
            self.lost(now)
            return 0.0
        if now - self._last_out >= self.heartbeat / 2:
            self.writer().write(codec.HEARTBEAT_FRAME)
            self._last_out = now
        return min(self._last_in + 2 * self.heartbeat, self._last_out + self.heartbeat / 2)

    def sent(self, now: float) -> None:
        """Notes the time at which gathered output was written."""
        self._last_out = now

    # --- closing

    def fail(self, error: AmqpError, now: float) -> None:
        """Closes the connection with the reason."""
        if self.phase in (session_table.CLOSING, session_table.CLOSED):
            return
        self.failure = error.text
        _log.info("connection closed", connection=self.name or self.user, reason=error.text)
        self.release(now)
        self._send_close(error)
        self.phase = session_table.CLOSING

    def close(
        self, now: float, detail: str = "broker forced connection closure with reason 'shutdown'"
    ) -> None:
        """Closes the connection on behalf of the server."""
        self.fail(AmqpError(codec.CONNECTION_FORCED, detail), now)

    def _send_close(self, error: AmqpError) -> None:
        class_id, method_id = error.method >> 16, error.method & 0xFFFF
        self.send(0, _Method.Close(error.code, error.text, class_id, method_id))

    def _end(self) -> None:
        self.phase = session_table.CLOSED
        self.closing = True
        self.writable = False
        self.writer()


def _long_string(method: object, field: str) -> bytes:
    """Returns the bytes of a long string. pamqp gives one that is not UTF-8 as bytes, against its type, which
    compiled code would refuse as an attribute.
    """
    value: object = getattr(method, field)
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else b""


def _negotiated(what: str, given: int, asked: int, least: int) -> int:
    """Returns the client's value for a limit.

    Raises NOT_ALLOWED if it is lower than `least` or higher than `asked`; 0, unlimited, counts as higher.
    """
    if 0 < given < least:
        relation, bound = "lower than the minimum", least
    elif given == 0 or given > asked:
        relation, bound = "higher than the maximum", asked
    else:
        return given
    detail = f"negotiated {what} = {given} is {relation} allowed value ({bound})"
    raise AmqpError(codec.NOT_ALLOWED, detail, commands.Connection.TuneOk.index)
