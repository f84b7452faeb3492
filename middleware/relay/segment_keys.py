"""The keys of segments of a secured host, changed as the coordinator says, without a gap.

Hosts hear of a new key within milliseconds of each other, and packets are under way. So a host takes segments
under the new key at once, sends under it a little later, and refuses the old one later still:

  heard                 + SWITCH_SECONDS        + DROP_SECONDS
  new key is accepted   new key is sent with    keys that hold no longer are forgotten

What another host sends under a key that this one has not heard of yet is asked for again, as what was lost.
An expelled host's key opens and makes nothing any more after DROP_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from treecast.middleware.model.logs import Log
from treecast.middleware.wire.segment_keys import KeyRing

SEGMENTS: Final = "fabric segments 1"  # label from which the key of segments is derived
SWITCH_SECONDS: Final = 0.2
DROP_SECONDS: Final = 0.6

if TYPE_CHECKING:
    from treecast.middleware.api.trust import Trust
    from treecast.middleware.api.trust_calls import Keys

_log = Log(__name__)
Later = Callable[[float, Callable[[], None]], object]  # calls something in so many seconds


class SegmentKeys:
    """Keeps a key ring at what `trust` says. `later`: of the event loop."""

    def __init__(self, ring: KeyRing, trust: Trust, later: Later) -> None:
        self._ring = ring
        self._trust = trust
        self._later = later
        trust.on_keys.append(self.changed)

    def changed(self, keys: Keys) -> None:
        """Takes other keys. If they change again meanwhile, the last ones count."""
        for number in keys.keys:
            self._ring.add(number, self._trust.key_of(number).derive(SEGMENTS))
        self._later(SWITCH_SECONDS, lambda: self._switch(keys))
        self._later(DROP_SECONDS, lambda: self._drop(keys))

    def _hold(self, keys: Keys) -> bool:
        """Whether these are the last ones: what was told since may be of certificates alone."""
        last = self._trust.keys
        return last is keys or (last.current == keys.current and last.keys.keys() == keys.keys.keys())

    def _switch(self, keys: Keys) -> None:
        if self._hold(keys) and self._ring.current != keys.current:
            self._ring.use(keys.current)
            _log.info("key of segments changed", key=keys.current, valid=len(keys.keys))

    def _drop(self, keys: Keys) -> None:
        if self._hold(keys):
            self._ring.keep(keys.keys)

    def end(self) -> None:
        """Takes no further keys."""
        if self.changed in self._trust.on_keys:
            self._trust.on_keys.remove(self.changed)


def ring_of(trust: Trust) -> dict[int, bytes]:
    """Returns the keys of segments that hold now, by number."""
    return {number: trust.key_of(number).derive(SEGMENTS) for number in trust.keys.keys}
