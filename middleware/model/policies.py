"""Operators' choices that several rooms use."""

from __future__ import annotations

import enum


class QueuePolicy(enum.Enum):
    """The treatment of a message for a client whose queue is full. All such messages are counted."""

    DROP_NEW = "drop-new"
    DROP_OLD = "drop-old"
    DISCONNECT = "disconnect"  # a client that is away loses the new one


class Protection(enum.Enum):
    """Of packets between hosts. AUTO: SEALED in a secured cluster, else AUTHENTICATED."""

    AUTO = "auto"
    OFF = "off"
    AUTHENTICATED = "authenticated"
    SEALED = "sealed"
