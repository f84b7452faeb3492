"""Choices that an operator has, which several rooms know."""

from __future__ import annotations

import enum


class QueuePolicy(enum.Enum):
    """What becomes of a message for a client whose queue is full. All are counted."""

    DROP_NEW = "drop-new"
    DROP_OLD = "drop-old"
    DISCONNECT = "disconnect"  # a client that is away loses the new one
