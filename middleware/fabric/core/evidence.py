"""Evidence on whether what a carrier sends to all arrives at each host.

Data and heartbeats of a stream go to all by its carrier. Reports and their echoes go by unicast, and a report
says how many segments sent to all have arrived. A host whose reports arrive while nothing of the group does
is cut off from the group, whatever the rate of the stream is:

    sent to all --> a report without an arrival: suspected --> another one, `spacing` later: NOTHING

Three times NOTHING in a row (`states`) and the host is unreached. A single arrival by any stream of the group
ends the doubt, so loss alone seldom leads that far. A group has one `Evidence`, shared by its streams: many
streams decide no sooner than one.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import NEVER

from .pacing import Quickest
from .states import ArrivalEvent, ArrivalState, arrival_step

_LEAST: Final = 0.1  # minimum seconds between two findings of NOTHING
_MOST: Final = 2.0  # maximum, and minimum for carriers that look for dead ways themselves
_TRIPS: Final = 2.0  # turnarounds that data of a group may be later than a report
# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_ARRIVES: Final = ArrivalState.ARRIVES
_CUT_OFF: Final = ArrivalState.CUT_OFF


def spacing(way: Quickest, *, named: bool) -> float:
    """The seconds between two findings about a host, by the quickest recent turnaround to it.

    `named`: the carrier's packets name their receivers. Such carriers send by other hosts or links as soon as
    some do not answer, and get the time for it.
    """
    quickest = way.value
    if named or quickest == NEVER:
        return _MOST if named else _LEAST
    return min(max(_LEAST, _TRIPS * quickest), _MOST)


class _Finding:
    __slots__ = ("at", "state")

    def __init__(self) -> None:
        self.state = _ARRIVES
        self.at = -NEVER  # of the last NOTHING


class Evidence:
    """The findings of all streams of one group about its hosts."""

    __slots__ = ("_hosts", "users")

    def __init__(self) -> None:
        self.users = 0  # streams
        self._hosts: dict[int, _Finding] = {}

    def arrived(self, host: int) -> None:
        """Something sent to the group has arrived at the host."""
        self._hosts.pop(host, None)

    def nothing(self, host: int, apart: float, now: float) -> bool:
        """A stream reports that nothing has arrived. Returns whether the host is cut off.

        Findings less than `apart` seconds after another one count as the same one.
        """
        found = self._hosts.get(host)
        if found is None:
            found = self._hosts[host] = _Finding()
        if now - found.at < apart:
            return False
        found.at = now
        found.state = arrival_step(found.state, ArrivalEvent.NOTHING)
        if found.state is not _CUT_OFF:
            return False
        del self._hosts[host]  # it gets unicast now; nothing is known of later use
        return True

    def doubts(self, host: int) -> bool:
        """Whether nothing had arrived at the last look."""
        return host in self._hosts


class _Sight:
    """One host as one stream sees it."""

    __slots__ = ("arrived", "sent", "since")

    def __init__(self, arrived: int, sent: int) -> None:
        self.arrived = arrived  # segments, by its last report
        self.sent = sent  # by the stream, when an arrival was last seen or missed
        self.since = NEVER  # something was sent before this time and had not arrived by then


class Sightings:
    """The evidence of one stream while a carrier sends it to `hosts`.

    `named`: packets name their receivers, so those that are not live are sent nothing.
    """

    __slots__ = ("_evidence", "_sights", "cut_off", "hosts", "named", "sent")

    def __init__(self, evidence: Evidence, *, named: bool) -> None:
        self.sent = 0  # segments sent to all by the carrier
        self.hosts: frozenset[int] = frozenset()
        self.cut_off: list[int] = []  # hosts found to be cut off; the caller removes them
        self.named = named
        self._evidence = evidence
        self._sights: dict[int, _Sight] = {}
        evidence.users += 1

    def over(self) -> Evidence:
        """Ends this stream's part. Returns the evidence, which may have no users any more."""
        self._evidence.users -= 1
        return self._evidence

    def reaches(self, hosts: frozenset[int]) -> None:
        """Sets the hosts that the carrier is meant to reach."""
        self.hosts = hosts
        self._sights = {host: sight for host, sight in self._sights.items() if host in hosts}

    def report(self, host: int, arrived: int, way: Quickest, now: float, *, live: bool) -> bool:
        """Takes a report that `arrived` segments sent to all have arrived at the host so far.

        Returns whether the host is in doubt. `live`: it gets what is sent to all.
        """
        if host not in self.hosts:
            return False
        sight = self._sights.get(host)
        if sight is None:
            self._sights[host] = _Sight(arrived, self.sent)
            return self._evidence.doubts(host)
        if arrived != sight.arrived or (self.named and not live):
            if arrived != sight.arrived:
                self._evidence.arrived(host)
            sight.arrived, sight.sent, sight.since = arrived, self.sent, NEVER
            return False
        self._look(host, sight, spacing(way, named=self.named), now)
        return sight.since < NEVER or self._evidence.doubts(host)

    def _look(self, host: int, sight: _Sight, apart: float, now: float) -> None:
        """Handles a report without an arrival."""
        if now - sight.since >= apart:  # NEVER: nothing is suspected
            sight.since = NEVER
            if self._evidence.nothing(host, apart, now):
                self.cut_off.append(host)
                self.hosts -= {host}
                del self._sights[host]
                return
        if sight.since == NEVER and sight.sent != self.sent:
            sight.sent, sight.since = self.sent, now
