"""Numbers of the calls to homes, on the channel between two hosts."""

from __future__ import annotations

import enum


class HomeMethod(enum.IntEnum):
    """Of the range 80-99. Calls keep their order on the way; answers may overtake each other."""

    JOIN = 80
    SYNC = 81
    HEARTBEAT = 82
    LEAVE = 83
    COMMIT = 84
    FETCH = 85
    DELETE_OFFSETS = 86
    DESCRIBE = 87
    DELETE = 88
    END_OFFSETS = 89
    LIST = 90
    INIT = 91
    ADD_PARTITIONS = 92
    ADD_OFFSETS = 93
    END = 94
    VERIFY = 95
    END_PARTS = 96
    LIST_TRANSACTIONS = 97
    CONSUMER_HEARTBEAT = 98
    ALTER_CONFIG = 99
