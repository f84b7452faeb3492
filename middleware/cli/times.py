"""Times in notations for people."""

from __future__ import annotations

from datetime import UTC, datetime

from .output import CommandError

_MOST_DIGITS = 18  # fit into 63 bits


def milliseconds(text: str, option: str) -> int:
    """Parses `1700000000000`, `2026-11-21T07:00:00Z` or `2026-11-21 07:00` (local) into ms since the Unix
    epoch.
    """
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise CommandError(
            f"{option} {text}: expected a time as in 2026-11-21T07:00:00Z, or milliseconds since 1970"
        ) from error


def time_text(timestamp_ms: int) -> str:
    """Returns ISO 8601 in UTC, with milliseconds."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
