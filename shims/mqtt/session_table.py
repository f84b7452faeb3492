"""The state machine of a connection as a table: which packet is allowed in which state.

Every (state, packet) pair is either listed with its action or refused with a clause.
"""

from __future__ import annotations

from typing import Final

from . import codec

# States of a connection.
NEW: Final = 0  # awaits CONNECT
OPEN: Final = 1
CLOSED: Final = 2  # further input is ignored
CHECKING: Final = 3  # the password of CONNECT is checked, and further input waits

# Actions.
OPENS: Final = 1
PUBLISHES: Final = 2
ACKNOWLEDGES: Final = 3
RECEIVES: Final = 4
RELEASES: Final = 5
COMPLETES: Final = 6
SUBSCRIBES: Final = 7
UNSUBSCRIBES: Final = 8
PINGS: Final = 9
LEAVES: Final = 10
AUTHENTICATES: Final = 11

ALLOWED: Final = {
    NEW: {codec.CONNECT: OPENS},
    CHECKING: {},
    OPEN: {
        codec.PUBLISH: PUBLISHES,
        codec.PUBACK: ACKNOWLEDGES,
        codec.PUBREC: RECEIVES,
        codec.PUBREL: RELEASES,
        codec.PUBCOMP: COMPLETES,
        codec.SUBSCRIBE: SUBSCRIBES,
        codec.UNSUBSCRIBE: UNSUBSCRIBES,
        codec.PINGREQ: PINGS,
        codec.DISCONNECT: LEAVES,
        codec.AUTH: AUTHENTICATES,
    },
    CLOSED: {},
}

REFUSED: Final = {
    NEW: dict.fromkeys([kind for kind in range(16) if kind != codec.CONNECT], "MQTT-3.1.0-1"),
    OPEN: {
        codec.CONNECT: "MQTT-3.1.0-2",
        0: "2.1.2",
        codec.CONNACK: "2.1.2",
        codec.SUBACK: "2.1.2",
        codec.UNSUBACK: "2.1.2",
        codec.PINGRESP: "2.1.2",
    },
    CHECKING: dict.fromkeys(range(16), "4.13"),
    CLOSED: dict.fromkeys(range(16), "4.13"),
}
