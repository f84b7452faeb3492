"""The state of one connection, for all parts of its session."""

from __future__ import annotations

from treecast.middleware.broker.access import Identities
from treecast.middleware.broker.pubsub import PubSub

from . import codec, session_table
from .codec import V5, V311, MqttError, clause
from .codec_packets import Connack, encode
from .rights import TopicRights
from .session_output import Edge, Outputs, SessionOutput
from .session_state import SessionState


class ConnectionState:
    """One connection. `state` is None until CONNECT. `last_activity` is when the last packet came,
    `idle_seconds` how long none may come, 0.0 for any time. `bridge`: the client is another broker.
    `paused`: nothing is read from the client now. `rights`: those of its user. `certified`: the user whom its
    certificate names, "" if none.
    """

    def __init__(self, hub: PubSub, outputs: Outputs, edge: Edge, now: float, identities: Identities) -> None:
        self.output = SessionOutput(hub, outputs, edge)
        self.state: SessionState | None = None
        self.last_activity = now
        self.idle_seconds = 0.0
        self.paused = False
        self.address = ""  # of the client, as the limits on log-ins count it
        self.certified = ""
        self.bridge = False
        self.rights = TopicRights(identities)

    @property
    def has_session(self) -> bool:
        """Whether the session is still this connection's, and no other's."""
        return self.state is not None and self.state.output is self.output

    def resume(self) -> None:
        """Delivers from the queue again, after the output has room."""
        state = self.state
        if state is not None and state.output is self.output:
            state.pump()

    def refuse(self, error: MqttError) -> bool:
        """Ends the connection with its reason, as far as the version has one. False if it has ended."""
        output = self.output
        if output.phase == session_table.CLOSED:
            return False
        output.failure = f"{error.detail} [{clause(error.rule, output.version)}]"
        if self.state is None:
            self._refuse_connect(error)
        else:
            output.send_disconnect(error.reason, output.failure)
        output.phase = session_table.CLOSED
        return True

    def _refuse_connect(self, error: MqttError) -> None:
        """Sends a CONNACK with the reason if the client's version has a code for it."""
        output = self.output
        if output.version == V5:
            packet = encode(Connack(False, error.reason, output.explained(output.failure)), V5)
            if len(packet) > output.max_packet:
                packet = encode(Connack(False, error.reason), V5)
            if len(packet) <= output.max_packet:
                output.writer().write(packet)
        elif error.reason in codec.RETURN_CODES:
            output.writer().write(encode(Connack(False, codec.RETURN_CODES[error.reason]), V311))
        output.end()
