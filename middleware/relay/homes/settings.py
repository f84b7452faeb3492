"""What operators may one day set of homes. Times are seconds, sizes bytes."""

from __future__ import annotations

from msgspec import Struct


class MirrorSettings(Struct, frozen=True):
    """Of writes to the coordinator's store. What one call carries is below the coordinator's own bounds."""

    patience: float = 2.0  # a write waits as long for a coordinator that does not answer
    call: float = 2.0  # one call may take as long
    pause: float = 5.0  # the longest between attempts
    homes: int = 1000
    bytes: int = 1 << 20


class HomeSettings(Struct, frozen=True):
    mirror: MirrorSettings = MirrorSettings()
    ask_again: float = 1.0  # between questions for a home whose host is away
    tidy: float = 300.0  # between looks for homes of which there is nothing
    connect: float = 2.0  # a call waits as long for a connection to its host


DEFAULTS = HomeSettings()
