"""A VNF's inference from its own sightings and those that others share: direction and speed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from .city import PLACES, Sighting

KEEP = 300  # sightings that a state holds, the newest
_LEAST_SECONDS = 5.0  # nobody is faster from one scanner to the next


class Movement(Struct, frozen=True):
    """Somebody has come here from elsewhere. Speed in m/s."""

    address: str
    origin: str
    target: str
    left: float
    arrived: float
    speed: float


class Tracker:
    """The tracker of the VNF at `name`. Its state is the list of its last sightings, as JSON."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._own: dict[str, float] = {}
        self._others: dict[str, dict[str, float]] = {}

    def report(self, sightings: Iterable[Sighting]) -> bytes:
        """Records the scanner's report. Returns the state to share."""
        for one in sightings:
            self._own[one.address] = one.time
        newest = sorted(self._own.items(), key=lambda item: item[1])[-KEEP:]
        return msgspec.json.encode({"place": self.name, "seen": [Sighting(*item) for item in newest]})

    def shared(self, value: bytes) -> None:
        """Records another VNF's state. Sightings that it shared before and now leaves out are kept."""
        state = msgspec.json.decode(value)
        seen = self._others.setdefault(state["place"], {})
        seen.update((one["address"], one["time"]) for one in state["seen"])

    def movements(self) -> list[Movement]:
        """Returns the devices that came here from another scanner: the one that saw each last before."""
        found = [self._last(address, arrived) for address, arrived in self._own.items()]
        return [one for one in found if one is not None]

    def _last(self, address: str, arrived: float) -> Movement | None:
        before = [(seen[address], place) for place, seen in self._others.items() if address in seen]
        before = [one for one in before if one[0] < arrived - _LEAST_SECONDS]
        if not before:
            return None
        left, origin = max(before)
        distance = abs(PLACES[self.name] - PLACES[origin])
        return Movement(address, origin, self.name, left, arrived, distance / (arrived - left))


def read_report(line: bytes | str) -> list[Sighting]:
    """Returns a scanner's line."""
    return msgspec.json.decode(line, type=list[Sighting])


def write_report(sightings: Iterable[Sighting]) -> bytes:
    """Returns a report as one line of JSON."""
    return msgspec.json.encode(list(sightings)) + b"\n"


def places_of(hosts: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Returns the host of each VNF."""
    return {place: host for host, places in hosts.items() for place in places}
