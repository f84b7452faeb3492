"""A street with four scanners and its passers-by: the scanners' reports, and the truth. Pure, by a seed.

A device walks or drives along the street at a steady speed. A scanner records it when it passes, to within
half a second, under an address that is a hash. Others stay at one scanner, so that a report has 10 to 50
lines.
"""

from __future__ import annotations

import hashlib
import random

from msgspec import Struct

PLACES = {"a": 0.0, "b": 250.0, "c": 600.0, "d": 900.0}  # metres along the street
PERIOD = 20.0  # seconds between reports
LEAST, MOST = 10, 50  # addresses in one
_SPEEDS = (1.0, 14.0)  # m/s: walking, driving
_SLIP = 0.5  # a scanner's largest error in seconds


class Trip(Struct, frozen=True):
    """One device's way between two neighbouring scanners. Times in seconds, speed in m/s."""

    address: str
    origin: str
    target: str
    left: float
    arrived: float
    speed: float


class Sighting(Struct, frozen=True):
    """A line of a report."""

    address: str
    time: float


class City:
    """`reports` periods of it."""

    def __init__(self, seed: int, reports: int, devices: int) -> None:
        self.reports = reports
        self._random = random.Random(seed)
        self._salt = self._random.randbytes(16)
        self._seen: dict[str, list[Sighting]] = {name: [] for name in PLACES}
        self.trips: list[Trip] = []
        for number in range(devices):
            self._travel(number)
        self._count = devices
        self._made = {name: [self._report(name, n) for n in range(reports)] for name in PLACES}
        reported = {(one.address, name) for name in PLACES for report in self._made[name] for one in report}
        self.trips = [  # a scanner may be too slow for all that pass it
            trip
            for trip in self.trips
            if {(trip.address, trip.origin), (trip.address, trip.target)} <= reported
        ]

    def _address(self, number: int) -> str:
        return hashlib.sha256(self._salt + number.to_bytes(6)).hexdigest()[:12]

    def _travel(self, number: int) -> None:
        """Moves a device along the street or a part of it, in either direction."""
        rng, address = self._random, self._address(number)
        names = list(PLACES)
        if rng.random() < 0.5:
            names.reverse()
        first = rng.randrange(3)
        names = names[first : rng.randrange(first + 2, 5)]
        speed = rng.uniform(*_SPEEDS)
        time = rng.uniform(0, self.reports * PERIOD)
        before: tuple[str, float] | None = None
        for name in names:
            if before is not None:
                time = before[1] + abs(PLACES[name] - PLACES[before[0]]) / speed
            if time >= self.reports * PERIOD:
                return
            if before is not None:
                self.trips.append(Trip(address, before[0], name, before[1], time, speed))
            self._seen[name].append(Sighting(address, round(time + rng.uniform(-_SLIP, _SLIP), 2)))
            before = name, time

    def _report(self, name: str, number: int) -> list[Sighting]:
        start, rng = number * PERIOD, self._random
        passed = [one for one in self._seen[name] if start <= one.time < start + PERIOD]
        wanted = rng.randint(max(LEAST, len(passed)), max(MOST, len(passed)))
        found = passed[:MOST]
        while len(found) < min(wanted, MOST):
            self._count += 1  # a device that stays: seen only here
            found.append(Sighting(self._address(self._count), round(start + rng.random() * PERIOD, 2)))
        rng.shuffle(found)
        return found

    def report(self, name: str, number: int) -> list[Sighting]:
        """Returns the report of the scanner at `name` after period `number`."""
        return self._made[name][number]
