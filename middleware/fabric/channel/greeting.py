"""The handshake of one end: its hello, checks of the other end's hello, the proofs."""

from __future__ import annotations

from hmac import compare_digest

from msgspec import Struct

from .codec import (
    NO_CONNECTION,
    ChannelProtocolError,
    Handshake,
    Hello,
    Problem,
    Seal,
)
from .settings import SMALLEST_WINDOW, ChannelSettings


class Identity(Struct, frozen=True):
    """The identity of this end. `key`: the key of the cluster's channels (`codec.channel_key`)."""

    host_id: int
    incarnation: int
    cluster_id: str
    key: bytes | None


class Greeting:
    """`expected`: the dialled host; 0 at the accepting end."""

    def __init__(
        self, own: Identity, settings: ChannelSettings, nonce: bytes, expected: int, last: bytes
    ) -> None:
        self.own = own
        self.dialled = expected != 0
        self.peer = Hello("", 0, 0, b"")  # until the hello arrives
        self.connection = NO_CONNECTION
        self._expected = expected
        self._settings = settings
        self._nonce = nonce
        self._last = last
        self._made: Handshake | None = None

    def hello(self) -> bytes:
        """Returns the payload of this end's hello. The accepting end calls it after the other's hello."""
        own = self.own
        return Hello(
            own.cluster_id,
            own.host_id,
            own.incarnation,
            self._nonce,
            self._expected if self.dialled else self.peer.host_id,
            self._settings.window,
            self._settings.longest,
            self._last,
            own.key is not None,
        ).encode()

    def heard(self, payload: bytes) -> None:
        """Takes the other end's hello. Raises the reason for a refusal."""
        peer = Hello.decode(payload)
        self._check(peer)
        self.peer = peer
        mine = self.hello()
        dialler, acceptor = (mine, payload) if self.dialled else (payload, mine)
        self._made = Handshake(self.own.key, dialler, acceptor)
        self.connection = self._made.connection()

    def _check(self, peer: Hello) -> None:
        own = self.own
        # Before the proofs: these would fail as well, but could not say why.
        if peer.cluster_id != own.cluster_id:
            raise ChannelProtocolError(Problem.CLUSTER, f"{peer.cluster_id!r} there, {own.cluster_id!r} here")
        if peer.authenticated != (own.key is not None):
            raise ChannelProtocolError(Problem.AUTHENTICATION)
        if peer.host_id == own.host_id:
            raise ChannelProtocolError(Problem.SELF, f"host {own.host_id}")
        if self.dialled and peer.host_id != self._expected:
            raise ChannelProtocolError(Problem.WRONG_HOST, f"{peer.host_id} instead of {self._expected}")
        if peer.to != own.host_id and (self.dialled or peer.to != 0):
            raise ChannelProtocolError(
                Problem.WRONG_HOST, f"meant for host {peer.to}, but this is {own.host_id}"
            )
        if not peer.host_id or peer.window < SMALLEST_WINDOW:
            raise ChannelProtocolError(Problem.ENCODING, "a hello without host id or window")

    def proof(self) -> bytes:
        """Returns this end's proof."""
        return self._handshake.proof(self.dialled)

    def check_proof(self, proof: bytes) -> None:
        """Checks the other end's proof. Raises if it was not made with the cluster's key."""
        if not compare_digest(self._handshake.proof(not self.dialled), proof):
            raise ChannelProtocolError(Problem.PROOF)

    def seals(self) -> tuple[Seal | None, Seal | None]:
        """Returns the seals for incoming and for outgoing frames."""
        return self._handshake.seal(not self.dialled), self._handshake.seal(self.dialled)

    @property
    def _handshake(self) -> Handshake:
        if self._made is None:
            raise ValueError("the other end's hello has not arrived")
        return self._made
