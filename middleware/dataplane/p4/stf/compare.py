"""Describes the differences between a packet and its expectation, for people."""

from __future__ import annotations

from typing import Final

_BYTES_A_LINE: Final = 16


def difference(pattern: str | None, exact: bool, data: bytes) -> str | None:
    """Returns the mismatch of `data` in one line; None if it is as expected.

    `pattern` is in upper-case nibbles, `*` for any; None is any packet. With `exact` nothing may follow.
    """
    if pattern is None:
        return None
    got = data.hex().upper()
    if len(got) < len(pattern):
        return f"{len(data)} bytes came, at least {len(pattern) / 2:g} were expected"
    for position, wanted in enumerate(pattern):
        if wanted not in ("*", got[position]):
            byte, nibble = divmod(position, 2)
            half = ("high", "low")[nibble]
            return f"byte {byte}, {half} nibble: {wanted} was expected, {got[position]} came"
    if exact and len(got) > len(pattern):
        return f"{len(data)} bytes came, {len(pattern) // 2} were expected"
    return None


def side_by_side(pattern: str | None, exact: bool, data: bytes) -> str:
    """Returns expected and actual bytes in lines of 16, with `^` under the nibbles that differ."""
    wanted, got = pattern or "", data.hex().upper()
    lines = []
    for start in range(0, max(len(wanted), len(got), 1), 2 * _BYTES_A_LINE):
        part = slice(start, start + 2 * _BYTES_A_LINE)
        above, below = wanted[part], got[part]
        marks = "".join(_mark(above, below, at, exact) for at in range(max(len(above), len(below))))
        place = f"{start // 2:4}"
        lines.append(f"{place} expected  {_spaced(above)}".rstrip())
        lines.append(f"     got       {_spaced(below)}".rstrip())
        if "^" in marks:
            lines.append(f"               {_spaced(marks)}".rstrip())
    return "\n".join(lines)


def _mark(wanted: str, got: str, at: int, exact: bool) -> str:
    if at >= len(wanted):
        return "^" if exact else " "
    return " " if at < len(got) and wanted[at] in ("*", got[at]) else "^"


def _spaced(nibbles: str) -> str:
    return " ".join(nibbles[at : at + 2] for at in range(0, len(nibbles), 2))
