"""Rest: streams without news cost nothing each. Pairs of hosts tell each other that both are still there.

A receiver that has settled all of a stream, and whose origin knows that, has nothing to report; an origin
whose receivers all rest has nothing to announce. What their heartbeats and reports would still show, namely
that the other end is alive and knows the stream, is shown for all streams of two hosts at once by a *beat*:

    receiver                                    origin
      report (all settled, echo asked for) -->
                                           <--  echo with an offer: a checksum of what it has announced
      report "rests" (it knows that name and those members) -->
                                           <--  echo with an offer that says: accepted
      (no report)                               (no heartbeat to it)
      beat                                 <->  beat                                      every `interval`

A beat names the sender's run, and has two digests: of the streams that it serves to the other host, and of
those that it receives from it. Only a beat whose digest equals the other side's own is a sign of life. So a
host that has restarted, forgotten a stream or left one does not keep it at rest: after `LOST` intervals
without such a beat each stream of the pair goes back to heartbeats and reports of its own, within the times
that hold for them. New data, other members or another carrier wake a stream at once, whatever the beats say.

Hosts of earlier versions ignore offers, so they never say "rests"; beats go only to hosts that have offered,
or that send beats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment_bodies import Beat

from .settings import StreamSettings

LOST: Final = 3.2  # intervals without a fitting beat after which streams are on their own again
_OFFERED: Final = 10.0  # seconds after an offer for which beats are sent although nothing rests yet
_MARK: Final = (1 << 62) - 1


def mark(stream: int, epoch: int) -> int:
    """The mark of a stream, 62 bits. The digest of a set of streams is the exclusive or of their marks."""
    mixed = ((stream << 32 | epoch) * 0x9E3779B97F4A7C15) & _MARK
    return ((mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9) & _MARK


class Marked(Protocol):
    """A stream that counts in the digests of pairs."""

    @property
    def mark(self) -> int: ...
    def counted(self) -> Iterable[Pair]:
        """The pairs in whose digests it counts now."""


class Pair:
    """Another host, as seen by this one. `receiver_heard`, `origin_heard`: when it last showed that it
    receives what this host serves to it, and serves what this host receives from it."""

    __slots__ = (
        "_beaten_at",
        "_life",
        "_offered_at",
        "_run",
        "_stamp",
        "_wanted_at",
        "host",
        "origin_heard",
        "receive_digest",
        "received",
        "receiver_heard",
        "serve_digest",
        "served",
    )

    def __init__(self, host: int, life: float) -> None:
        """`life`: seconds for which a beat shows that the host is there."""
        self.host = host
        self.served: dict[tuple[int, int], None] = {}  # (stream, epoch) that rest at this host as a receiver
        self.received: dict[tuple[int, int], None] = {}  # (origin, stream) that rest at this one
        self.receiver_heard = -NEVER
        self.origin_heard = -NEVER
        self.serve_digest = 0  # of the streams that this host serves to it
        self.receive_digest = 0
        self._life = life
        self._offered_at = -NEVER
        self._wanted_at = -NEVER  # when it last asked for beats
        self._beaten_at = -NEVER
        self._run = 0
        self._stamp = 0

    def offered(self, now: float) -> None:
        """Notes that the host, as an origin, would let a stream rest."""
        self._offered_at = now

    def receives(self, now: float) -> bool:
        """Whether it has lately shown that it receives what it should."""
        return now - self.receiver_heard < self._life

    def serves(self, now: float) -> bool:
        """Whether it has lately shown that it serves what this host receives."""
        return now - self.origin_heard < self._life

    def wants(self, now: float) -> bool:
        """Whether this host needs its beats."""
        return bool(self.served or self.received) or now - self._offered_at < _OFFERED

    def active(self, now: float) -> bool:
        """Whether beats are sent to it."""
        return self.wants(now) or now - self._wanted_at < self._life

    def take(self, beat: Beat, now: float) -> bool:
        """Takes a beat; digests are up to date. Returns False if it is an old one, or a copy."""
        if beat.run != self._run:
            # Another life of the host: what rested with the earlier one has to show itself.
            self._run = beat.run
            self.receiver_heard = min(self.receiver_heard, now - self._life)
            self.origin_heard = min(self.origin_heard, now - self._life)
        elif beat.stamp <= self._stamp:
            return False
        self._stamp = beat.stamp
        if beat.wants:
            self._wanted_at = now
        if beat.received == self.serve_digest:
            self.receiver_heard = now
        if beat.served == self.receive_digest:
            self.origin_heard = now
        return True

    def stood(self, seconds: float, now: float) -> None:
        """Leaves out a time in which this host was stopped: beats may still wait in its sockets."""
        self.receiver_heard = min(self.receiver_heard + seconds, now)
        self.origin_heard = min(self.origin_heard + seconds, now)


class Pairs:
    """All pairs of this host. `changed`: some digest is out of date."""

    def __init__(self, settings: StreamSettings, run: int) -> None:
        """`run`: differs between runs of this host."""
        self.interval = min(
            settings.heartbeat_longest, settings.orphaned_after / 4, settings.silent_after / 4
        )
        self.run = run
        self.changed = True
        self.next_at = NEVER
        self.sent = 0  # beats
        self.received = 0
        self.lost = 0  # times that the resting streams of a pair had to show themselves
        self._hosts: dict[int, Pair] = {}
        self._stamp = 0

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._hosts.values())

    def to(self, host: int) -> Pair:
        """Returns the pair with `host`."""
        found = self._hosts.get(host)
        if found is None:
            found = self._hosts[host] = Pair(host, LOST * self.interval)
        return found

    def get(self, host: int) -> Pair | None:
        return self._hosts.get(host)

    def needed(self, now: float) -> None:
        """Has a round of beats begin now, unless rounds take place anyway."""
        if self.next_at == NEVER:
            self.next_at = now

    def count(self, streams: Iterable[Marked], received: Iterable[Marked]) -> None:
        """Computes all digests, if something has changed. Others serve `received`, this host `streams`."""
        if not self.changed:
            return
        self.changed = False
        for pair in self._hosts.values():
            pair.serve_digest = pair.receive_digest = 0
        for one in streams:
            for pair in one.counted():
                pair.serve_digest ^= one.mark
        for one in received:
            for pair in one.counted():
                pair.receive_digest ^= one.mark

    def take(self, host: int, beat: Beat, now: float) -> bool:
        """Takes a beat; `count` was called. Returns False if there is nothing between the hosts, or if it is
        old."""
        pair = self._hosts.get(host)
        if pair is None or not pair.take(beat, now):
            return False
        self.received += 1
        if pair.active(now):
            self.needed(now)
        return True

    def lost_ones(self, now: float) -> list[Pair]:
        """The pairs whose streams have to show themselves. Begins a round; `beats` ends it."""
        late = now - self.next_at
        if late >= self.interval:
            for pair in self._hosts.values():
                pair.stood(late, now)
        return [
            pair
            for pair in self._hosts.values()
            if (pair.served and not pair.receives(now)) or (pair.received and not pair.serves(now))
        ]

    def beats(self, now: float) -> list[tuple[int, Beat]]:
        """Returns the beats of this round by host, and sets the time of the next round."""
        self._stamp = max(self._stamp + 1, int(now * 1e6))
        found = [
            (pair.host, Beat(self.run, self._stamp, pair.serve_digest, pair.receive_digest, pair.wants(now)))
            for pair in self._hosts.values()
            if pair.active(now)
        ]
        self.next_at = now + self.interval if found else NEVER
        self.sent += len(found)
        return found
