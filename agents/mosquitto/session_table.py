"""The state machine of a connection at the client's end, as a table: which packet is allowed in which state.

The states and the actions are those of the server's end (`shims.mqtt.session_table`), with those added that
only a client has.
"""

from __future__ import annotations

from typing import Final

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.session_table import (
    ACKNOWLEDGES,
    CLOSED,
    COMPLETES,
    NEW,
    OPEN,
    PUBLISHES,
    RECEIVES,
    RELEASES,
)

ACCEPTS: Final = 101
GRANTS: Final = 102
ALIVE: Final = 103
ENDS: Final = 104

ALLOWED: Final = {
    NEW: {codec.CONNACK: ACCEPTS},
    OPEN: {
        codec.PUBLISH: PUBLISHES,
        codec.PUBACK: ACKNOWLEDGES,
        codec.PUBREC: RECEIVES,
        codec.PUBREL: RELEASES,
        codec.PUBCOMP: COMPLETES,
        codec.SUBACK: GRANTS,
        codec.UNSUBACK: GRANTS,
        codec.PINGRESP: ALIVE,
        codec.DISCONNECT: ENDS,
    },
    CLOSED: {},
}
