"""The methods of channel 0, with which a connection is opened and left; and its heartbeats.

States and actions are defined in `session_table`.
"""

from __future__ import annotations

from typing import Final

from pamqp import base, commands
from pamqp.common import FieldTable

from treecast.middleware.model.principal import HERE, Principal, Proof
from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import AmqpError
from .session_channels import Channels
from .session_host import credentials
from .session_state import ConnectionState

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


class Opening:
    """The channel 0 part of a connection. `joined`: it was noted as an application. `blocked`: the client was
    notified that its publishes are not read.
    """

    def __init__(self, state: ConnectionState, channels: Channels) -> None:
        self.joined = False
        self._state = state
        self._host = state.host
        self._channels = channels
        self._asks = ""  # the user whose password is checked
        self._claimed = ""  # whom the client claims to be
        self.blocked = False

    def header(self, data: bytes) -> int:
        """Handles the protocol header. Answers any other header with the supported one and closes.

        Returns the number of bytes used.
        """
        begin = data[: len(codec.PROTOCOL_HEADER)]
        if codec.PROTOCOL_HEADER.startswith(begin):
            # The beginning fits so far: the rest decides.
            if len(begin) < len(codec.PROTOCOL_HEADER):
                self._state.wanted = len(codec.PROTOCOL_HEADER)
                return 0
            self._state.phase = session_table.STARTING
            self._state.send(_Method.Start(0, 9, self._server_properties(), self._mechanisms(), "en_US"))
            return len(begin)
        if begin == b"AMQP\x00\x01\x00\x00" or begin == b"AMQP\x03\x01\x00\x00":
            self._state.failure = "the client speaks AMQP 1.0, which is not served"
        else:
            self._state.failure = f"the client speaks another protocol: {begin!r}"
        self._state.output.writer().write(codec.PROTOCOL_HEADER)
        # The specification asks for this answer: the client learns which version is served.
        self._state.end()
        return len(data)

    def on_method(self, number: int, method: base.Frame, now: float) -> None:
        action = session_table.CONNECTION[self._state.phase].get(method.index)
        if number:
            raise AmqpError(codec.COMMAND_INVALID, f"{method.name} on channel {number}", method.index)
        if action is None:
            code = session_table.CONNECTION_REFUSED[self._state.phase]
            if code:
                raise AmqpError(code, f"{method.name} is not allowed in this state", method.index)
            return
        if action == "leave":
            self._channels.release_all(now)
            self._state.send(_Method.CloseOk())
            self._state.output.left = True
            self._state.end()
        elif action == "closed":
            self._state.end()
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
            "version": self._host.settings.version,
            "platform": "Python",
            "information": "https://github.com/treecast/treecast",
            "capabilities": _CAPABILITIES,
        }

    def _mechanisms(self) -> str:
        offered = self._host.access.mechanisms
        return " ".join((*offered, _EXTERNAL) if self._state.certified else offered)

    def _log_in(self, method: commands.Connection.StartOk) -> None:
        properties = method.client_properties or {}
        capabilities = properties.get("capabilities")
        self._state.capabilities = capabilities if isinstance(capabilities, dict) else {}
        # Names are for people only: they identify nobody, and two clients may have the same.
        self._state.name = str(properties.get("connection_name", ""))
        # Messages of one lane go to one partition of a topic. A named client keeps its lane when it
        # reconnects.
        self._state.lane = self._state.name or f"#{self._state.number}"
        self._state.properties = properties
        self._state.raises_prefetch = properties.get("product") in _RAISE_PREFETCH
        self._state.mechanism = mechanism = method.mechanism
        # The client may only choose what was offered: EXTERNAL not without a certificate.
        if mechanism not in self._mechanisms().split():
            detail = f"unknown authentication mechanism '{mechanism}'"
            raise AmqpError(codec.COMMAND_INVALID, detail, method.index)
        proof = _long_string(method, "response")
        access = self._host.access
        if mechanism == _EXTERNAL:
            self._authenticated(self._state.certified if access.knows(self._state.certified) else None)
            return
        given = credentials(mechanism, proof)
        secret = access.secret(given[0]) if given is not None else None
        if given is None or secret is None:
            self._authenticated(None if given is None else given[0])
            return
        self._asks = self._claimed = given[0]
        self._state.held = True
        # The check takes a while on a thread, and what the client sends meanwhile waits.
        self._host.log_ins.check(self._state.address, given[0], given[1], secret, self._state.output.edge)

    def checked(self, outcome: Outcome) -> None:
        """Goes on with the log-in after the check of its password."""
        user, self._asks = self._asks, ""
        self._state.held = False
        if self._state.phase != session_table.STARTING:
            # The client has gone, or its connection was closed, while the password was checked.
            return
        if outcome is Outcome.BUSY:
            self._refuse_login("too many log-ins wait: try again")
        else:
            self._authenticated(user if outcome is Outcome.FITS else None)

    def _authenticated(self, user: str | None) -> None:
        """Goes on after the log-in of `user`, or refuses it if it is None or must not come from there."""
        mechanism, identities = self._state.mechanism, self._host.identities
        if user is None or not self._host.access.may_come(user, self._state.local):
            claimed = user or self._claimed or self._state.certified
            who = Principal(claimed, proof=Proof.NONE, address=self._state.address or HERE)
            identities.logged_in("amqp", who, f"{mechanism}: refused", allowed=False)
            self._refuse_login(
                f"Login was refused using authentication mechanism {self._state.mechanism}. "
                "For details see the broker logfile."
            )
            return
        self._state.user = user
        proof = Proof.CERTIFICATE if self._state.mechanism == _EXTERNAL else Proof.PASSWORD
        self._state.principal = Principal(user, proof=proof, address=self._state.address or HERE)
        identities.logged_in("amqp", self._state.principal, mechanism, allowed=True)
        self._state.phase = session_table.TUNING
        asked = self._host.settings
        self._state.send(_Method.Tune(asked.channel_max, asked.frame_max, asked.heartbeat))

    def _refuse_login(self, detail: str) -> None:
        """Refuses a login: with connection.close if the client supports it, else by closing the socket."""
        error = AmqpError(codec.ACCESS_REFUSED, detail, _Method.StartOk.index)
        self._state.failure = error.text
        if self._state.capabilities.get("authentication_failure_close") is True:
            self._state.send_close(error)
        else:
            self._state.end()

    def _tune(self, method: commands.Connection.TuneOk) -> None:
        asked = self._host.settings
        self._state.frame_max = _negotiated("frame_max", method.frame_max, asked.frame_max, codec.FRAME_MIN)
        self._state.channel_max = _negotiated("channel_max", method.channel_max, asked.channel_max, 1)
        self._state.heartbeat = method.heartbeat
        self._state.phase = session_table.OPENING

    def _open(self, method: commands.Connection.Open) -> None:
        vhost = self._host.vhosts.get(method.virtual_host)
        if vhost is None:
            raise AmqpError(codec.NOT_ALLOWED, f"vhost {method.virtual_host} not found", method.index)
        if not self._host.access.may_open(self._state.user, method.virtual_host):
            detail = f"access to vhost '{method.virtual_host}' refused for user '{self._state.user}'"
            raise AmqpError(codec.NOT_ALLOWED, detail, method.index)
        self._state.vhost = vhost
        self._state.phase = session_table.OPEN
        self._state.send(_Method.OpenOk())
        self.joined = True
        self._host.applications.joined("amqp", self._state.shown_name, self._state.ends[0][0])
        if self._host.alarm:
            # An alarm that began before this connection is made known to it here, others when they begin.
            self.block(self._host.alarm)

    def _renew(self, method: commands.Connection.UpdateSecret) -> None:
        if not self._host.access.renewed(self._state.user, _long_string(method, "new_secret")):
            raise AmqpError(codec.NOT_ALLOWED, "New secret was refused by one of the backends", method.index)
        self._channels.forget_permissions()
        self._state.send(_Method.UpdateSecretOk())

    # --- blocked publishers

    def block(self, reason: str) -> None:
        """Sends connection.blocked if the client supports it: its publishes will not be read."""
        if not self.blocked and self._state.capabilities.get("connection.blocked") is True:
            self.blocked = True
            self._state.send(_Method.Blocked(reason))

    def unblock(self) -> None:
        if self.blocked:
            self.blocked = False
            self._state.send(_Method.Unblocked())


class Heartbeats:
    """The heartbeats of a connection, after those of its client."""

    def __init__(self, state: ConnectionState, now: float) -> None:
        self.last_in = now
        self.last_out = now
        self._state = state

    def missed(self, now: float) -> bool:
        """Whether nothing has come for two intervals. It is the connection's `failure` then."""
        state = self._state
        missed = state.heartbeat > 0 and now - self.last_in >= 2 * state.heartbeat
        if missed:
            state.failure = f"missed heartbeats from client, timeout: {state.heartbeat}s"
        return missed

    def tick(self, now: float) -> float:
        """Sends a heartbeat after half an interval without output. Returns when to check again, 0.0 for
        never."""
        state, seconds = self._state, self._state.heartbeat
        if not seconds or state.phase == session_table.CLOSED:
            return 0.0
        if now - self.last_out >= seconds / 2:
            state.output.writer().write(codec.HEARTBEAT_FRAME)
            self.last_out = now
        return min(self.last_in + 2 * seconds, self.last_out + seconds / 2)


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
