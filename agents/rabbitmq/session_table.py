"""The phases of a connection to a server, as a client sees them."""

from __future__ import annotations

from typing import Final

STARTING: Final = "starting"  # the protocol header is sent
TUNING: Final = "tuning"  # the log-in is sent
OPENING: Final = "opening"  # the virtual host is named
OPEN: Final = "open"
CLOSING: Final = "closing"  # this end has asked for the end
CLOSED: Final = "closed"

PHASES: Final = (STARTING, TUNING, OPENING, OPEN, CLOSING, CLOSED)

# (phase, method of channel 0) -> the phase after it. Everything else of channel 0 is refused, except the
# methods in EVERYWHERE, and every method while CLOSING, which is ignored.
STEPS: Final = {
    (STARTING, "Connection.Start"): TUNING,
    (TUNING, "Connection.Tune"): OPENING,
    (OPENING, "Connection.OpenOk"): OPEN,
    (CLOSING, "Connection.CloseOk"): CLOSED,
    **{(phase, "Connection.Close"): CLOSED for phase in PHASES if phase != CLOSED},
}
EVERYWHERE: Final = frozenset({"Connection.Blocked", "Connection.Unblocked", "Connection.UpdateSecretOk"})
