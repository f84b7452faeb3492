"""Admission of calls: protocol, cluster and key must match, and no call is accepted twice. See
`call_auth`.
"""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Mapping

from treecast.middleware.model.errors import Fault, TreecastError

from .call_auth import (
    AUTH_KEY,
    CHALLENGE_KEY,
    CLUSTER_KEY,
    PROOF_KEY,
    PROTOCOL,
    PROTOCOL_KEY,
    CallKey,
    Proof,
)
from .join_token import JoinToken

WINDOW_SECONDS = 30.0
MAX_NONCES = 200_000


class Refused(TreecastError):
    """A refused call. `reason` is for the counter, `metadata` for the caller."""

    def __init__(
        self, fault: Fault, detail: str, reason: str, metadata: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(fault, detail)
        self.reason = reason
        self.metadata = metadata


class SeenCalls:
    """The nonces of the time window, bounded: too many of them shorten the window."""

    def __init__(self, window: int, limit: int) -> None:
        """`window` in ms; `limit`: the maximum number of nonces."""
        self._window = window
        self._limit = limit
        self._nonces: set[bytes] = set()
        self._by_time: list[tuple[int, bytes]] = []
        self._floor = -1  # calls of this time (ms) or earlier are too old

    def timely(self, time: int, now: int) -> bool:
        """Returns whether a call of `time` can be distinguished from its repeat."""
        return time > self._floor and now - self._window <= time <= now + self._window

    def is_new(self, nonce: bytes, time: int, now: int) -> bool:
        """Records a timely call. Returns False if it was recorded before."""
        if nonce in self._nonces:
            return False
        self._nonces.add(nonce)
        heapq.heappush(self._by_time, (time, nonce))
        while self._by_time and self._by_time[0][0] < now - self._window:
            self._nonces.discard(heapq.heappop(self._by_time)[1])
        while len(self._by_time) > self._limit:
            dropped, old = heapq.heappop(self._by_time)
            self._nonces.discard(old)
            self._floor = max(self._floor, dropped)
        return True


class Admission:
    """Checks of a call's metadata, before its request is read. `run` is random per start."""

    def __init__(
        self,
        cluster_id: str,
        token: JoinToken | None,
        run: bytes,
        *,
        window: float = WINDOW_SECONDS,
        max_nonces: int = MAX_NONCES,
    ) -> None:
        """If `token` is None, calls are not authenticated."""
        self._cluster_id = cluster_id
        self._key = None if token is None else CallKey(token)
        self._run = run
        self._seen = SeenCalls(round(window * 1000), max_nonces)

    def trusts(self, metadata: Mapping[str, str], peer: str) -> bool:
        """Whether a call names this run, which only holders of the key learn, before its request is read."""
        proof = Proof.parse(metadata.get(AUTH_KEY, ""))
        return proof is not None and hmac.compare_digest(proof.run, self._run)

    def seal(self, metadata: Mapping[str, str], method: str, number: int, body: bytes) -> bytes:
        """Returns the sealed answer to an admitted call; `number` counts the messages of a stream."""
        proof = Proof.parse(metadata.get(AUTH_KEY, ""))
        return (
            body if self._key is None or proof is None else self._key.seal(method, proof.nonce, number, body)
        )

    def proof_of(
        self, metadata: Mapping[str, str], method: str, fault: str, detail: str
    ) -> tuple[tuple[str, str], ...]:
        """Returns metadata that proves to holders of the key that a refusal is the coordinator's."""
        proof = Proof.parse(metadata.get(AUTH_KEY, ""))
        if self._key is None or proof is None:
            return ()
        return ((PROOF_KEY, self._key.refusal(method, proof.nonce, fault, detail)),)

    def admit(
        self, metadata: Mapping[str, str], method: str, body: bytes, now: float, peer: str = ""
    ) -> None:
        """Raises Refused. `now`: seconds of a steady clock, at least 0. `peer` is ignored here."""
        self._check_protocol(metadata.get(PROTOCOL_KEY, ""))
        self._check_cluster(metadata.get(CLUSTER_KEY, ""))
        if self._key is not None:
            self._check_proof(self._key, metadata.get(AUTH_KEY, ""), method, body, round(now * 1000))

    def _check_protocol(self, protocol: str) -> None:
        if protocol != PROTOCOL:
            raise Refused(
                Fault.UNSUPPORTED_VERSION,
                f"the caller uses version {protocol[:20]!r} of the coordinator's protocol, this coordinator"
                f" {PROTOCOL!r}: run the same version of Treecast on both",
                "protocol",
            )

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id and cluster_id != self._cluster_id:
            raise Refused(
                Fault.POLICY_VIOLATION,
                f"the caller belongs to cluster {cluster_id[:100]!r}, this coordinator to"
                f" {self._cluster_id!r}: join its own cluster, or start with an empty data directory",
                "cluster",
            )

    def _check_proof(self, key: CallKey, text: str, method: str, body: bytes, now: int) -> None:
        proof = Proof.parse(text)
        if proof is None:
            raise Refused(
                Fault.POLICY_VIOLATION,
                "the call is not signed, and this cluster has a key: give the join token",
                "unsigned" if not text else "malformed",
            )
        if not key.verify(proof, method, body):
            raise Refused(
                Fault.POLICY_VIOLATION,
                "the call is not signed by this cluster's key: use the join token of this cluster",
                "key",
            )
        if proof.run != self._run or not self._seen.timely(proof.time, now):
            challenge = key.challenge(self._run, now, proof.nonce)
            raise Refused(
                Fault.POLICY_VIOLATION,
                "the call is signed for another run or time of the coordinator: sign it for this one",
                "stale",
                ((CHALLENGE_KEY, challenge),),
            )
        if not self._seen.is_new(proof.nonce, proof.time, now):
            raise Refused(Fault.POLICY_VIOLATION, "the call was received before: sign it again", "replayed")
