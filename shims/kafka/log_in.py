"""The log-in of one Kafka connection, without I/O: SaslHandshake, SaslAuthenticate (KIP-43, 84, 152, 255).

| state | what is served | what follows |
| --- | --- | --- |
| NEW | ApiVersions; SaslHandshake; everything else while nobody is asked who it is | CHOSEN |
| CHOSEN | ApiVersions; SaslAuthenticate | DONE, CHOSEN after the first message of SCRAM, FAILED |
| DONE | everything; SaslHandshake repeats the log-in, as the same user (KIP-368) | CHOSEN |
| FAILED | nothing: the connection ends | |

With a client certificate that names a user the state is DONE from the beginning. A log-in by a token holds
until the token ends: then the connection may only log in again, with another one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from treecast.middleware.broker import Leaders
from treecast.middleware.broker.access import CheckedLeaders, Granted, Identities, Operation
from treecast.middleware.model.principal import ANONYMOUS, HERE, Principal, PrincipalKind, Proof
from treecast.middleware.model.scram import HASHES, ServerExchange, Verifier

from . import versions as v

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES)


class State(enum.Enum):
    NEW = "new"
    CHOSEN = "chosen"
    DONE = "done"
    FAILED = "failed"


# The APIs that are served in a state while clients have to log in; None: all of them.
SERVED: Final[Mapping[State, frozenset[int] | None]] = MappingProxyType(
    {
        State.NEW: frozenset({v.API_VERSIONS, v.SASL_HANDSHAKE}),
        State.CHOSEN: frozenset({v.API_VERSIONS, v.SASL_AUTHENTICATE}),
        State.DONE: None,
        State.FAILED: frozenset(),
    }
)


class LogIn:
    """How far the log-in of a connection has come, and what it may do.

    `origin`: the client's address, as the limits on log-ins count it.
    """

    def __init__(self, identities: Identities, origin: str = "") -> None:
        self.identities = identities
        self.origin = origin
        self.granted = Granted(identities, ANONYMOUS, identities.trail, "kafka")
        self.state = State.NEW
        self.mechanism = ""
        self.exchange: ServerExchange | None = None
        self.rejected = ""  # why its token was refused, until the client has taken note of that
        self.until = 0.0  # when the log-in ends, in seconds since 1970; 0.0: never
        self._was_known = False  # its user was among the users
        self._writable: CheckedLeaders | None = None
        self._readable: CheckedLeaders | None = None

    @property
    def waits(self) -> bool:
        """Whether the client has to log in before it is served."""
        return self.state is not State.DONE and self.identities.closed

    @property
    def lapsed(self) -> bool:
        """Whether the connection has to end: its user was deleted, or clients have to log in by now."""
        principal = self.granted.principal
        if principal.kind is PrincipalKind.USER:
            if self.identities.admits(principal.name, self.origin):
                self._was_known = True
                return False
            return self._was_known
        return self.identities.closed

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that are offered."""
        return (*MECHANISMS, OAUTHBEARER) if self.identities.tokens is not None else MECHANISMS

    @property
    def settled(self) -> bool:
        """Whether all APIs are served without another look, where clients have to log in."""
        return self.state is State.DONE and not self.until

    def serves(self, key: int, now: float) -> bool:
        """Whether an API is served now, where clients have to log in. `now`: seconds since 1970."""
        over = self.state is State.DONE and 0 < self.until <= now
        served = SERVED[State.NEW if over else self.state]
        return served is None or key in served

    def choose(self, mechanism: str, nonce: bytes) -> None:
        """Begins a log-in. `nonce`: random bytes for SCRAM."""
        self.state = State.CHOSEN
        self.mechanism = mechanism
        self.exchange = None
        self.rejected = ""
        if mechanism in HASHES:
            identities = self.identities
            self.exchange = ServerExchange(mechanism, nonce, _Finder(identities, mechanism, self.origin))

    def certify(self, certificate: Mapping[str, object]) -> None:
        """The client has proven by a certificate who it is. A name that no user has is served as well, and
        without rights, so that the client learns by each API's own error what it lacks."""
        user = self.identities.user_of(certificate)
        if user:
            principal = Principal(user, proof=Proof.CERTIFICATE, address=self.origin or HERE)
            self.granted.become(principal)
            self.identities.logged_in("kafka", principal, Proof.CERTIFICATE.value, allowed=True)
            self.state = State.DONE
            self._was_known = self.identities.admits(user, self.origin)

    def succeed(self, user: str, until: float = 0.0) -> bool:
        """Returns whether the connection is now the user's: it stays the one whose it was before. One that a
        certificate has proven may become another's once, as in Kafka. `until`: as the attribute."""
        before = self.granted.principal
        settled = before is not ANONYMOUS and before.proof is not Proof.CERTIFICATE
        if (settled and before.name != user) or not self.identities.admits(user, self.origin):
            return False
        proof = _PROOFS.get(self.mechanism, Proof.SCRAM)
        self._was_known = True
        self.until = until
        self.granted.become(Principal(user, proof=proof, address=self.origin or HERE))
        self.identities.logged_in("kafka", self.granted.principal, self.mechanism, allowed=True)
        self.state = State.DONE
        self.exchange = None
        return True

    def refused(self, user: str, reason: str) -> None:
        """A log-in was refused. `user`: who it claimed to be."""
        claimed = Principal(user, proof=Proof.NONE, address=self.origin or HERE)
        self.identities.logged_in("kafka", claimed, f"{self.mechanism}: {reason}", allowed=False)

    def fail(self) -> None:
        self.state = State.FAILED
        self.exchange = None

    # --- partitions

    def writable(self, leaders: Leaders) -> Leaders:
        """Returns the partitions to which the connection may write."""
        if self._writable is None:
            self._writable = CheckedLeaders(leaders, self.granted, Operation.WRITE)
        return self._writable

    def readable(self, leaders: Leaders) -> Leaders:
        if self._readable is None:
            self._readable = CheckedLeaders(leaders, self.granted, Operation.READ)
        return self._readable


_PROOFS: Final[Mapping[str, Proof]] = MappingProxyType({PLAIN: Proof.PASSWORD, OAUTHBEARER: Proof.TOKEN})


class _Finder:
    """Finds the verifier of the user who asks."""

    def __init__(self, identities: Identities, mechanism: str, origin: str) -> None:
        self._identities = identities
        self._mechanism = mechanism
        self._origin = origin

    def __call__(self, name: str) -> Verifier:
        return self._identities.verifier(self._mechanism, name, self._origin)
