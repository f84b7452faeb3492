"""The group of one topic, or of one set of hosts, as its origin keeps it: members, probes, rate."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from msgspec import Struct

from treecast.middleware.fabric.carriers.carrier import Carrier
from treecast.middleware.fabric.standing import Standing, StandingSettings
from treecast.middleware.model.timers import NEVER

Levels = tuple[str, ...]
_NONCES: Final = 8


class CarrierSettings(Struct, frozen=True):
    """Times in seconds."""

    hosts: int = 2  # receivers that a group needs; 0: everything goes by unicast
    eager: int = 512  # groups formed regardless of rate; further ones need `earns`
    soon: float = 0.01  # delay of the next check after receivers have changed
    earns: float = 10_000.0  # rate of live records, in bytes per second, that further groups need
    keeps: float = 120.0  # time below that rate after which a group is dissolved
    tick: float = 1.0
    probe_first: float = 0.2  # interval of probes while some hosts have not answered yet
    probe_tries: int = 5  # number of such probes; then the interval is `probe_every`
    probe_every: float = 30.0
    standing: StandingSettings = StandingSettings()  # when a host is lost, and when it returns
    allot_again: float = 5.0
    wait: float = 0.3  # how long a burst waits for a group that is being formed
    call: float = 5.0
    much: float = 0.5  # repaired share of a host's records above which it is no longer confirmed
    much_of: int = 1000  # minimum number of records for that decision


class Member:
    """A receiver of the group's streams. `joined`: whether it has joined and may be sent packets."""

    def __init__(self, standing: Standing, *, joined: bool) -> None:
        self.joined = joined
        self.refused = ""  # why it cannot join
        self.standing = standing
        self.live = 0  # live and repaired records, as counted at the last check
        self.repaired = 0

    @property
    def confirmed(self) -> bool:
        """Whether it gets what is sent to the group."""
        return self.standing.reached


class Group:
    """The group of one topic, or of one set of hosts, on one carrier.

    `state_id`: 0 if the carrier's packets name their receivers.
    """

    def __init__(self, levels: Levels, carrier: Carrier, settings: CarrierSettings) -> None:
        self.levels = levels
        self.name = ".".join(levels)
        self.carrier = carrier.name
        self.form = carrier.group_form
        self.state_id: int | None = None if carrier.group_form else 0
        self.members: dict[int, Member] = {}
        self.nonces: deque[int] = deque(maxlen=_NONCES)  # of the last probes; answers may be late
        self.probed = -NEVER  # the loop's time
        self.tries = 0
        self.segment_bytes = 0  # of its streams' longest segments, and of its probes
        self.task: asyncio.Task[None] | None = None
        self._settings = settings
        self._standings: dict[int, Standing] = {}  # of members, and of hosts that were members

    def admit(self, host: int, now: float) -> None:
        """Adds `host` as a new member, or as one that joins again. If it has nothing to join, it is probed at
        once."""
        standing = self._standings.setdefault(host, Standing(self._settings.standing, now))
        standing.begins_anew(now)
        self.members[host] = Member(standing, joined=not self.form)
        if not self.form:
            self.tries = 0

    def carries(self, segment_bytes: int, now: float) -> None:
        """Notes how long its streams' segments are. Longer ones than before have to be probed."""
        if segment_bytes > self.segment_bytes:
            for member in self.members.values():
                if member.confirmed:
                    member.standing.begins_anew(now)
        if segment_bytes != self.segment_bytes:
            self.segment_bytes, self.tries = segment_bytes, 0

    @property
    def confirmed(self) -> frozenset[int]:
        """The hosts that get what is sent to the group."""
        return frozenset([host for host, member in self.members.items() if member.confirmed])

    @property
    def lost(self) -> list[int]:
        """The hosts that were reached before, and get unicast."""
        return sorted([host for host, member in self.members.items() if member.standing.lost])

    def doubt_last(self, now: float) -> None:
        """Lets the last confirmed host answer again: a group is not used for it alone, so nothing else would
        show that the group does not reach it either."""
        confirmed = self.confirmed
        if self.form and len(confirmed) == 1:
            self.members[next(iter(confirmed))].standing.begins_anew(now)
            self.tries = 0

    @property
    def pending(self) -> bool:
        """Whether joined members have not answered any probe, and the first `probe_tries` are not over."""
        if self.tries >= self._settings.probe_tries:
            return False
        return any(
            one.joined and not one.confirmed and not one.standing.lost for one in self.members.values()
        )

    def probe_wait(self, now: float) -> float:
        """The time between the last probe and the next one."""
        settings = self._settings
        if self.pending:
            return settings.probe_first
        lost = [one.standing.asks(now) for one in self.members.values() if one.joined]
        return max(settings.probe_first, min(settings.probe_every, *lost, NEVER))
