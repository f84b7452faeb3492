"""The output of a node, and its reasons for refusing input."""

from __future__ import annotations

import enum

from msgspec import Struct, field

from treecast.middleware.wire.stare import StareKind
from treecast.middleware.wire.stare_signals import (
    MOST_ENTRIES,
    Opened,
    Signal,
    SignalKind,
    Update,
    encode_signal,
)

from .subscriptions import SubChange

_BATCH_BYTES = 1 << 18  # bytes of updates in one signal


class Packet(Struct, frozen=True):
    """A datagram for the group of (kind, state)."""

    kind: StareKind
    state: int
    data: bytes


class Output(Struct):
    """The actions that a node requests from its owner."""

    packets: list[Packet] = field(default_factory=list)
    signals: list[bytes] = field(default_factory=list)  # to the replica controller
    deliveries: list[tuple[int, Update]] = field(default_factory=list)  # (VNF of this host, update)
    opened: list[Opened] = field(default_factory=list)
    changes: list[SubChange] = field(default_factory=list)  # subscriptions with the switch


class Unknown(enum.Enum):
    """The node's own reasons for refusals."""

    NO_HEADER = "the STARE header is missing or invalid"
    NO_SIGNAL = "the packet is not a signal"
    STRAY_ACK = "an acknowledgement without a request"
    STRAY_KIND = "a request for switches"
    STRAY_SIGNAL = "a signal for the replica controller"
    NOT_SUBSCRIBED = "no VNF of this host subscribes to the state"
    OWN = "the packet was sent by this host"


class Batch:
    """Packs updates into few signals of bounded size."""

    def __init__(self, signals: list[bytes]) -> None:
        self._signals = signals
        self._updates: list[Update] = []
        self._size = 0

    def add(self, update: Update) -> None:
        if self._updates and (
            self._size + len(update.value) > _BATCH_BYTES or len(self._updates) == MOST_ENTRIES
        ):
            self.send()
        self._updates.append(update)
        self._size += len(update.value)

    def send(self) -> None:
        """Sends the remaining updates, if any."""
        if self._updates:
            signal = Signal(SignalKind.UPDATE, updates=tuple(self._updates))
            self._signals.append(encode_signal(signal))
        self._updates, self._size = [], 0
