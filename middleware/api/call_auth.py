"""Authentication of calls to the coordinator: an HMAC over each call and answer, with a key from the token.

  treecast-auth       <key id>.<run>.<time>.<nonce>.<mac>
  treecast-challenge  <run>.<time>.<mac>                     in the trailing metadata of a refusal
  treecast-proof      <mac>                                  in that of any refusal
  treecast-leader     <address, or nothing>                  in that of a coordinator that does not lead

The coordinator draws `run` (16 bytes, hex) at start; `time` is its own steady clock in milliseconds; `nonce`
(16 bytes, hex) is drawn for each call. `mac` (32 bytes, hex) is HMAC-SHA-256 over

  "call"      | method | cluster id | run | time | nonce | SHA-256 of the request's bytes
  "challenge" | run | time | nonce of the call that it refuses
  "answer"    | method | nonce of the call | number of the message, from 0 | SHA-256 of its bytes
  "refusal"   | method | nonce of the call | fault | SHA-256 of the detail

with each field after its length (4 bytes, big endian). The MAC of an answer follows its bytes as field 15 of
the message, a number that no message of ours uses:

  0x7a 0x20 | mac (32 bytes)

A caller that does not know the run, or whose time has drifted out of the window, is refused with a challenge,
learns both from it, and calls again. No wall clock takes part, so a wrong or jumping clock on either side
locks nobody out. A call recorded in an earlier run of the coordinator is worthless in the next.

A bearer token would be simpler, but an observer of one call could then make any other. The MAC covers the
request's bytes because there is no TLS below. Calls and answers are not confidential.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from treecast.middleware.model.errors import Fault, TreecastError

from .join_token import JoinToken

AUTH_KEY = "treecast-auth"
CHALLENGE_KEY = "treecast-challenge"
PROOF_KEY = "treecast-proof"
LEADER_KEY = "treecast-leader"
CLUSTER_KEY = "treecast-cluster"
PROTOCOL_KEY = "treecast-protocol"
PROTOCOL = "1"
PURPOSE = "control calls 1"
RUN_BYTES = NONCE_BYTES = 16
NO_RUN = bytes(RUN_BYTES)
_SEAL = b"\x7a\x20"  # field 15, length-delimited, 32 bytes
SEAL_BYTES = len(_SEAL) + 32

_PROOF = re.compile(r"([0-9]{1,5})\.([0-9a-f]{32})\.([0-9]{1,16})\.([0-9a-f]{32})\.([0-9a-f]{64})\Z")
_CHALLENGE = re.compile(r"([0-9a-f]{32})\.([0-9]{1,16})\.([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True)
class Proof:
    """The content of `treecast-auth`. `time` in ms of the coordinator's clock."""

    key_id: int
    run: bytes
    time: int
    nonce: bytes
    mac: bytes

    def format(self) -> str:
        return f"{self.key_id}.{self.run.hex()}.{self.time}.{self.nonce.hex()}.{self.mac.hex()}"

    @classmethod
    def parse(cls, text: str) -> Proof | None:
        found = _PROOF.match(text)
        if found is None:
            return None
        key_id, run, time, nonce, mac = found.groups()
        return cls(int(key_id), bytes.fromhex(run), int(time), bytes.fromhex(nonce), bytes.fromhex(mac))


class CallKey:
    """The key for calls, derived from a join token."""

    def __init__(self, token: JoinToken) -> None:
        self.key_id = token.key_id
        self.cluster_id = token.cluster_id
        self._key = token.derive(PURPOSE)

    def sign(self, method: str, body: bytes, run: bytes, time: int, nonce: bytes) -> Proof:
        """`method` is the path, as in `/treecast.v1.Coordinator/Attach`."""
        return Proof(self.key_id, run, time, nonce, self._call_mac(method, body, run, time, nonce))

    def verify(self, proof: Proof, method: str, body: bytes) -> bool:
        """Returns, in constant time, whether this key made the proof for this call."""
        wanted = self._call_mac(method, body, proof.run, proof.time, proof.nonce)
        return hmac.compare_digest(wanted, proof.mac) and proof.key_id == self.key_id

    def challenge(self, run: bytes, time: int, nonce: bytes) -> str:
        return f"{run.hex()}.{time}.{self._challenge_mac(run, time, nonce).hex()}"

    def read_challenge(self, text: str, nonce: bytes) -> tuple[bytes, int] | None:
        """Returns (run, time) of a challenge to the call with `nonce`; None if this key did not make it."""
        found = _CHALLENGE.match(text)
        if found is None:
            return None
        run, time = bytes.fromhex(found[1]), int(found[2])
        wanted = self._challenge_mac(run, time, nonce)
        return (run, time) if hmac.compare_digest(wanted, bytes.fromhex(found[3])) else None

    def seal(self, method: str, nonce: bytes, number: int, body: bytes) -> bytes:
        """Returns the answer's bytes followed by the MAC. `number` counts the messages of a stream's
        answer.
        """
        return b"".join((body, _SEAL, self._answer_mac(method, nonce, number, body)))

    def open(self, method: str, nonce: bytes, number: int, sealed: bytes) -> bytes | None:
        """Returns the bytes of a sealed answer; None if this key did not seal it for this call."""
        body, seal = sealed[:-SEAL_BYTES], sealed[-SEAL_BYTES:]
        wanted = _SEAL + self._answer_mac(method, nonce, number, body)
        return body if hmac.compare_digest(wanted, seal) else None

    def refusal(self, method: str, nonce: bytes, fault: str, detail: str) -> str:
        """Returns the MAC of a refusal, in the form of the metadata."""
        digest = hashlib.sha256(detail.encode(errors="replace")).digest()
        return self._mac(b"refusal", method.encode(), nonce, fault.encode(), digest).hex()

    def _answer_mac(self, method: str, nonce: bytes, number: int, body: bytes) -> bytes:
        digest = hashlib.sha256(body).digest()
        return self._mac(b"answer", method.encode(), nonce, b"%d" % number, digest)

    def _call_mac(self, method: str, body: bytes, run: bytes, time: int, nonce: bytes) -> bytes:
        fields = (method.encode(), self.cluster_id.encode(), run, b"%d" % time, nonce)
        return self._mac(b"call", *fields, hashlib.sha256(body).digest())

    def _challenge_mac(self, run: bytes, time: int, nonce: bytes) -> bytes:
        return self._mac(b"challenge", run, b"%d" % time, nonce)

    def _mac(self, *fields: bytes) -> bytes:
        joined = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
        return hmac.digest(self._key, joined, "sha256")


class Signer:
    """A caller's side: its knowledge of the coordinator's run and clock. `now` is the caller's clock,
    in s.
    """

    def __init__(self, token: JoinToken) -> None:
        self.key = CallKey(token)
        self._run = NO_RUN
        self._ahead = 0.0  # the coordinator's clock minus the caller's, s

    def sign(self, method: str, body: bytes, nonce: bytes, now: float) -> str:
        time = max(round((now + self._ahead) * 1000), 0)
        return self.key.sign(method, body, self._run, time, nonce).format()

    def learn(self, challenge: str, nonce: bytes, now: float) -> None:
        """Adopts the values of a challenge. Raises POLICY_VIOLATION if another key made it."""
        found = self.key.read_challenge(challenge, nonce)
        if found is None:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                "the other end does not know this cluster's key: check its address and the token",
            )
        self._run, time = found
        self._ahead = time / 1000 - now
