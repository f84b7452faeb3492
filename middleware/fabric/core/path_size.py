"""The longest packets that arrive at one host: the search of RFC 8899 (datagram packetization layer path MTU
discovery).

    WAITING --reached--> CHECKING --answered--> COMPLETE --check--> CHECKING
                            | unanswered           ^
                            v                      | found
                          BASE --answered--> SEARCHING
                            | unanswered
                            v
                         NARROW

Other than there, the search begins with the longest size that both ends have, because most paths carry it:
data uses it from the start. If all probes of the size in use are lost, and one of the shortest arrives, data
uses the shortest until the longest that arrive are known. A size is not reduced without that one answer: the
host may be away.

Messages of routers are not waited for: switches send none, and many networks drop them.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import NEVER

from .states import PathEvent, PathState, path_step

LEAST: Final = 1280  # bytes: any link of IPv6 carries it, and all segments without data fit into it
CLOSE: Final = 16  # bytes: the search ends within them, or within one in 64
_WAITS: Final = (0.2, 0.3, 0.4, 0.5)  # seconds for the answer to each probe of one size
_SEARCH_WAITS: Final = (0.2, 0.3, 0.4)  # the same while others are known to be answered
CHECK_EVERY: Final = 30.0
RAISE_EVERY: Final = 300.0
AGAIN_EVERY: Final = 10.0  # if not even the shortest arrive


class PathSize:
    """The search on the path to one host. Sizes are of packets with their IP header.

    `size`: the longest that data may have. Call `to_send` when `next_deadline` is reached, and `answered`
    with the size of each probe that has arrived.
    """

    def __init__(self, most: int) -> None:
        """`most`: the longest packets of both ends' interfaces."""
        self.state = PathState.WAITING
        self.most = most
        self.size = most
        self._arrives = 0  # while searching: a size that arrives, and one that does not
        self._fails = most + 1
        self._asks = 0  # size of the present probes
        self._tries = 0  # how many of this size were sent
        self._at = NEVER  # when the next step is due
        self._raise_at = NEVER

    @property
    def least(self) -> int:
        """The size below which nothing is looked for."""
        return min(LEAST, self.most)

    @property
    def is_short(self) -> bool:
        """Whether packets that both ends could have do not arrive."""
        return self.size < self.most

    # --- what happens

    def limit(self, most: int, now: float) -> None:
        """Sets the longest packets of both ends, and begins with them if they are others than before."""
        if most == self.most:
            return
        waits = self.state is PathState.WAITING
        self.most = self.size = most
        if not waits:
            self.reached(now)

    def reached(self, now: float) -> None:
        """Notes that the host can be reached from now on: the size in use is checked."""
        self._enter(PathEvent.REACHED, now)

    def left(self, now: float) -> None:
        """Notes that the host cannot be reached."""
        self._enter(PathEvent.LEFT, now)

    def suspect(self, now: float) -> None:
        """Notes that data does not arrive: the size in use is checked now."""
        if self.state is PathState.COMPLETE:
            self._enter(PathEvent.SUSPECT, now)

    def answered(self, size: int, now: float) -> None:
        """Notes that a probe of `size` has arrived; the answer may be late."""
        state = self.state
        if state is PathState.CHECKING and size >= self.size:
            self._enter(PathEvent.ANSWERED, now)
        elif state is PathState.BASE or state is PathState.NARROW:
            if size >= self.size:  # of the size that counted as lost
                self._enter(PathEvent.REACHED, now)
                self._enter(PathEvent.ANSWERED, now)
                return
            self._arrives, self._fails, self.size = size, self.size, size
            self._enter(PathEvent.ANSWERED, now)
        elif state is PathState.SEARCHING and size > self._arrives:
            self._arrives = size
            self._fails = max(self._fails, size + 1)
            self._enter(PathEvent.ANSWERED, now)

    # --- probes

    def next_deadline(self) -> float:
        """When `to_send` has something to do."""
        return self._at

    def put_off(self, until: float) -> None:
        """Notes that nothing can be sent before `until`."""
        self._at = max(self._at, until)

    def to_send(self, now: float) -> int:
        """Returns the size of the probe to be sent now; 0: none is."""
        if now < self._at:
            return 0
        if self.state is PathState.COMPLETE:
            raises = self.is_short and now >= self._raise_at
            if raises:
                self._arrives, self._fails = self.size, self.most + 1
            self._enter(PathEvent.RAISE if raises else PathEvent.CHECK, now)
        elif self.state is PathState.NARROW:
            self._enter(PathEvent.CHECK, now)
        elif self._tries >= len(self._waits):
            self._unanswered(now)
        if not self._asks:
            return 0
        self._at = now + self._waits[self._tries]
        self._tries += 1
        return self._asks

    @property
    def _waits(self) -> tuple[float, ...]:
        return _SEARCH_WAITS if self.state is PathState.SEARCHING else _WAITS

    def _unanswered(self, now: float) -> None:
        if self.state is PathState.SEARCHING:
            self._fails = self._asks
        self._enter(PathEvent.UNANSWERED, now)

    def _enter(self, event: PathEvent, now: float) -> None:
        """Makes a step, and sets what is probed in the new state."""
        self.state = path_step(self.state, event)
        self._tries, self._asks, self._at = 0, 0, now
        if self.state is PathState.CHECKING:
            self._asks = self.size
        elif self.state is PathState.BASE:
            self._asks = self.least
        elif self.state is PathState.SEARCHING:
            self._asks = self._middle()
            if not self._asks:
                self._found(now)
        elif self.state is PathState.COMPLETE:
            self._at = now + CHECK_EVERY
        else:
            self._at = now + AGAIN_EVERY if self.state is PathState.NARROW else NEVER

    def _middle(self) -> int:
        """The next size to try: first the longest, then between what arrives and what does not; 0 if these
        are close."""
        arrives, fails = self._arrives, self._fails
        if fails > self.most:
            return self.most if arrives < self.most else 0
        return (arrives + fails) // 2 if fails - arrives > max(CLOSE, arrives // 64) else 0

    def _found(self, now: float) -> None:
        self.size = self._arrives
        self._raise_at = now + RAISE_EVERY
        self._enter(PathEvent.FOUND, now)
