"""Kafka's quotas of one connection: what its requests cost, and the throttle time in its answers (KIP-219).

An answer that costs too much is sent at once, with the time that the client should wait. The connection then
reads nothing for that time, so that clients that do not wait are slowed as well.
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.broker.access import Allowance, Identities, Spending
from treecast.middleware.model.buffers import BUFFERS, Chunk
from treecast.middleware.model.principal import Principal

from . import versions as v
from .schema import throttle_at

_HEAD: Final = struct.Struct(">hh")  # API key and version, where a request begins
_TIME: Final = struct.Struct(">i")
_FLEXIBLE: Final = 9  # the first version of Produce with tags
_END: Final = (
    _TIME.size,
    _TIME.size + 1,
)  # bytes from the throttle time of Produce on, without and with tags


class Meter:
    """The spending of a connection on its quotas. `until`: when it may be served again."""

    def __init__(self, identities: Identities) -> None:
        self.until = 0.0
        self.quotas = identities.quotas
        self._allowance = Allowance(identities.quotas)
        self._spending: Spending | None = None  # of the last request: its answer counts there

    def request(self, frame: memoryview, principal: Principal, client_id: str, now: float) -> tuple[int, int]:
        """Counts a request before it is served. Returns its API key and version."""
        if len(frame) < _HEAD.size:
            return -1, 0
        key, version = _HEAD.unpack_from(frame)
        produced = len(frame) if key == v.PRODUCE else 0
        self._spending = self._allowance.of(principal.name, client_id, now)
        self._wait(self._spending.request(produced, now), now)
        return key, version

    def answer(self, key: int, version: int, buffers: list[Chunk], now: float) -> list[Chunk]:
        """Counts an answer. Returns it with the time to wait."""
        if key == v.FETCH and self._spending is not None:
            size = sum([len(one) for one in buffers])
            self._wait(self._spending.fetched(size, now), now)
        left = self.until - now
        if left <= 0 or not buffers:
            return buffers
        return with_throttle_time(key, version, buffers, max(round(left * 1000), 1))

    def _wait(self, seconds: float, now: float) -> None:
        self.until = max(self.until, now + seconds) if seconds > 0 else self.until


def with_throttle_time(key: int, version: int, buffers: list[Chunk], milliseconds: int) -> list[Chunk]:
    """Returns an answer with its throttle time, which was 0; one that has none as it is.

    Produce has it at the end, behind it a byte for tags in flexible versions; others where they begin.
    """
    last = len(buffers) - 1 if key == v.PRODUCE else 0
    part = buffers[last]
    if not isinstance(part, BUFFERS):
        return buffers
    at = len(part) - _END[version >= _FLEXIBLE] if key == v.PRODUCE else throttle_at(key, version)
    if not 0 < at <= len(part) - _TIME.size:
        return buffers
    changed = bytearray(part)
    _TIME.pack_into(changed, at, milliseconds)
    return [*buffers[:last], changed, *buffers[last + 1 :]]
