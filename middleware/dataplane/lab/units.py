"""Numbers with units in a lab's file: rates, durations, shares.

| value    | examples                     | unit of the result |
| -------- | ---------------------------- | ------------------ |
| rate     | `"100mbit"`, `"64kbit"`, 8000 | bit/s             |
| duration | `"10ms"`, `"250us"`, 0.01     | seconds           |
| share    | `"1%"`, 0.01                  | 0 to 1            |
"""

from __future__ import annotations

import re

_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z%]*)", re.ASCII)
_RATES = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_DURATIONS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SHARES = {"": 1.0, "%": 0.01}
_LEAST_RATE, _MOST_RATE = 8_000, 10**10
_LONGEST = 60.0


def rate(text: str | float) -> int:
    """Bits per second, from 8 kbit/s (below, a frame takes longer than a second) to 10 Gbit/s."""
    found = int(_scaled(text, _RATES, "100mbit"))
    if not _LEAST_RATE <= found <= _MOST_RATE:
        raise ValueError(f"{text!r} is not from 8kbit to 10gbit")
    return found


def duration(text: str | float) -> float:
    """Seconds, from 0 to 60."""
    found = _scaled(text, _DURATIONS, "10ms")
    if not 0 <= found <= _LONGEST:
        raise ValueError(f"{text!r} is not from 0 to 60s")
    return found


def share(text: str | float) -> float:
    """Returns a share of all frames, from 0 to 1."""
    found = _scaled(text, _SHARES, "1%")
    if not 0 <= found <= 1:
        raise ValueError(f"{text!r} is not from 0 to 1, or from 0% to 100%")
    return found


def _scaled(text: str | float, units: dict[str, int] | dict[str, float], example: str) -> float:
    if not isinstance(text, str):
        return float(text)
    match = _NUMBER_AND_UNIT.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        raise ValueError(f"{text!r} is no number with a unit of {known}, as in {example!r}")
    return float(match[1]) * units[match[2]]
