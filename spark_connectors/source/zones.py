"""Time zones in Spark's notation: a region, or an offset such as `+01:00`, `GMT+1` and `Z`."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

SESSION_ZONE = "spark.sql.session.timeZone"  # a local property of tasks, if the session has set it
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_ZERO = ("Z", "UTC", "GMT", "UT")


def zone_of(name: str) -> datetime.tzinfo:
    """Returns the zone. Raises ValueError for an unknown name."""
    if name in _ZERO:
        return datetime.UTC
    if found := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        offset = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return datetime.timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise ValueError(f"{name!r} is no time zone; Europe/Berlin, UTC and +01:00 are") from None


def host_zone() -> str:
    """Returns the zone of this host, which a JVM takes as its default, too; empty if it has no name."""
    for name in (os.environ.get("TZ", "").removeprefix(":"), _linked()):
        try:
            if name:
                zone_of(name)
                return name
        except ValueError:
            pass
    return ""


def _linked() -> str:
    path = os.path.realpath("/etc/localtime")
    _, found, name = path.partition("/zoneinfo/")
    if found:
        return name
    try:
        return Path("/etc/timezone").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
