"""Finds links that carry nothing: a packet goes over each link, round after round. Pure.

A switch's controller sends the packet into a switch, and gets it back from one, if the links on its way and
the switches at their ends work. No program has to know of it: what leads other packets leads it.

    probes = Probes(network, form)
    for probe in probes.round(reached):      # to be sent into `probe.node`
    probes.answer(packet)                    # that a switch has sent to its controller
    probes.down                              # links (bits), always both directions

A link is down after `MISSED` rounds without any answer, and up again after `ANSWERED` rounds with one. An
answer that comes rounds later counts for the round in which it comes: a slow machine is not a broken link. A
round without any answer says nothing: it is the controller that is cut off or stands still.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network

MISSED: Final = 3
ANSWERED: Final = 2
CPU_PORT: Final = 510  # of switches: what they send there goes to their controller


class Probe(Struct, frozen=True):
    """A frame for the switch `node`, as if it had come from its controller."""

    node: int
    frame: bytes


class Form(Protocol):
    """How probes are led over the links of one kind of network."""

    @property
    def links(self) -> Collection[int]:
        """The links to probe: one direction of each if probes go there and back, else both."""

    @property
    def blind_is_down(self) -> bool:
        """Whether a link counts as silent while no probe can be sent over it; else it stays as it was."""

    def probe(self, link: int, reached: Collection[int], down: int) -> Probe | None:
        """Returns the probe of a link; None if none of `reached`, the switches that the controller reaches,
        can send it, or none can tell of it. `down`: links to avoid on the way (bits)."""

    def link_of(self, packet: bytes) -> int:
        """Returns the link that a packet tells of, which a switch has sent to its controller; -1 if it is no
        probe."""
        ...


class Probes:
    """The links between the switches of one network. `down`: links that carry nothing (bits)."""

    def __init__(self, network: Network, form: Form) -> None:
        self.down = 0
        self._answered: set[int] = set()
        self._streaks: dict[int, int] = {}  # above 0: rounds with an answer, below: without
        self._asked: set[int] = set()
        self.become(network, form)

    def become(self, network: Network, form: Form) -> None:
        """Takes another network. What is known of a link stays if it has the same number in both."""
        self._network, self._form = network, form
        self._streaks = {link: self._streaks.get(link, 0) for link in form.links}
        self.down &= sum(3 << (pair & -2) for pair in {link & -2 for link in form.links})

    def answer(self, packet: bytes) -> bool:
        """Takes a packet that a switch has sent to its controller. Returns whether it was a probe."""
        link = self._form.link_of(packet)
        if link in self._streaks:
            self._answered.add(link)
        return link in self._streaks

    def round(self, reached: Collection[int]) -> list[Probe]:
        """Ends a round and returns the probes of the next. `reached`: the switches that the controller
        reaches."""
        if self._answered:
            for link in self._streaks:
                self._count(link)
            self.down = self._judged()
        self._answered.clear()
        found = {link: self._form.probe(link, reached, self.down) for link in self._streaks}
        self._asked = {link for link, probe in found.items() if probe is not None}
        return [probe for probe in found.values() if probe is not None]

    def _count(self, link: int) -> None:
        streak = self._streaks[link]
        if link in self._answered:
            self._streaks[link] = max(streak, 0) + 1
        elif link in self._asked or self._form.blind_is_down:
            self._streaks[link] = min(streak, 0) - 1

    def _judged(self) -> int:
        """Returns the links that are down now. A link between the two bounds stays as it was."""
        down = self.down
        for link, streak in self._streaks.items():
            if streak >= ANSWERED:
                down &= ~(3 << (link & -2))
        for link, streak in self._streaks.items():  # one direction is enough
            if streak <= -MISSED or (self.down >> link & 1 and streak < ANSWERED):
                down |= 3 << (link & -2)
        return down

    def names(self) -> list[str]:
        """Returns the links that are down, one name for both directions."""
        return [self._network.link_name(link) for link in members(self.down) if not link & 1]
