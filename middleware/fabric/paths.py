"""The paths to other hosts: how long packets may be on each, found by probes (`core.path_size`).

    paths.tell(host, 9000)          # the MTU of its interface, as it told the cluster; 0: unknown
    paths.host_up(host)             # there is a channel: the path is probed, and answers come by the channel
    paths.least(hosts)              # the longest segment that arrives at all of them
    paths.suspect(host)             # data of that size seems not to arrive
    paths.narrow()                  # for operators

A probe is a segment filled up with zeros to the size of the packet. It is sent by unicast, and no host or
router may cut it into fragments. A stream is cut to what arrives at all of its receivers, whichever carrier
it uses; carriers are probed with segments of that length (`Fabric.send_probe`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Kind, control, encode
from treecast.middleware.wire.segment_bodies import Probe
from treecast.middleware.wire.segment_keys import KeyRing

from .core.path_size import LEAST, PathSize
from .core.states import PathState

if TYPE_CHECKING:
    from .carriers.unicast import Unicast
    from .core.streams import Streams
    from .edge import Edge

_log = Log(__name__)
_BUSY: Final = 0.05  # seconds that a probe waits while data waits for the kernel
_NONCES: Final = 16  # of the last probes of a path; answers may be late


class NarrowPath(Struct, frozen=True):
    """A path on which packets do not arrive that both ends could have. `most`: the least MTU of the two ends;
    `size`: the longest packets that arrive; 0: not even those of 1,280 bytes do."""

    host: int
    most: int
    size: int


class _Path:
    """One path. `up`: there is a channel to the host."""

    def __init__(self, most: int) -> None:
        self.up = False
        self.search = PathSize(most)
        self.vain = 0  # how often data seemed not to arrive
        self.sizes: dict[int, int] = {}  # of the last probes, by nonce


def padded(probe: bytes, size: int) -> bytes:
    """A probe's segment in a datagram of `size` bytes. What follows a segment is ignored by its receiver."""
    return probe.ljust(size, b"\0")


class Paths:
    """The paths from one host. `changed(host)` is called after the size for a host has changed."""

    def __init__(
        self,
        edge: Edge,
        unicast: Unicast,
        keys: KeyRing,
        overhead: int,
        changed: Callable[[int], None],
    ) -> None:
        """`overhead`: bytes that segments leave for the header of any carrier."""
        self._edge = edge
        self._unicast = unicast
        self._keys = keys
        self._overhead = overhead
        self._changed = changed
        self._most = edge.packet_bytes
        self._longest = edge.segment_bytes(overhead)
        self._paths: dict[int, _Path] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._paths.clear()

    # --- what is known of hosts

    def tell(self, host: int, mtu: int) -> None:
        """Takes the MTU of a host's interface; 0: unknown."""
        path = self._path(host)
        self._step(host, path, lambda now: path.search.limit(min(self._most, mtu or self._most), now))

    def host_up(self, host: int) -> None:
        """Notes that there is a channel to the host."""
        path = self._path(host)
        path.up = True
        self._step(host, path, path.search.reached)

    def host_down(self, host: int) -> None:
        """Notes that the channel has gone. The size found stays."""
        path = self._path(host)
        path.up = False
        self._step(host, path, path.search.left)

    def moved(self, host: int) -> None:
        """Notes that the host's address for segments is known, or another one."""
        path = self._path(host)
        if path.up:
            self._step(host, path, path.search.reached)

    def forget(self, host: int) -> None:
        """Forgets a host that has left the cluster."""
        self._paths.pop(host, None)

    def suspect_all(self, streams: Streams) -> None:
        """Takes note of the hosts at which nothing resent seems to arrive, and has their paths checked."""
        found, streams.in_vain = streams.in_vain, []
        for served, host in found:
            self.suspect(host, served.sender.name)

    def suspect(self, host: int, stream: str = "") -> None:
        """Notes that what is sent to the host again and again does not arrive."""
        path = self._path(host)
        path.vain += 1
        if not path.vain & (path.vain - 1):  # the 1st time, the 2nd, the 4th and so on
            _log.warning(
                "what is sent again to a host does not arrive", host=host, stream=stream, count=path.vain
            )
        self._step(host, path, path.search.suspect)

    def seen(self, host: int, nonce: int) -> bool:
        """Takes the answer to a probe. Returns whether it is one to a probe from here."""
        path = self._paths.get(host)
        size = path.sizes.pop(nonce, 0) if path is not None else 0
        if path is None or not size:
            return False
        search = path.search
        self._step(host, path, lambda now: search.answered(size, now))
        return True

    def _path(self, host: int) -> _Path:
        return self._paths.setdefault(host, _Path(self._most))

    # --- sizes

    def segment_bytes(self, host: int) -> int:
        """The longest segment that may be sent to the host."""
        path = self._paths.get(host)
        if path is None or path.search.size >= self._most:
            return self._longest
        return self._edge.segment_bytes(self._overhead, path.search.size)

    def least(self, hosts: Iterable[int]) -> int:
        """The longest segment that may be sent to all of the hosts."""
        return min([self.segment_bytes(host) for host in hosts], default=self._longest)

    def narrow(self) -> list[NarrowPath]:
        """The paths that carry less than both of their ends."""
        found = []
        for host, path in self._paths.items():
            search = path.search
            if search.state is PathState.NARROW:
                found.append(NarrowPath(host, search.most, 0))
            elif search.is_short:
                found.append(NarrowPath(host, search.most, search.size))
        return found

    # --- probes

    def _step(self, host: int, path: _Path, step: Callable[[float], None]) -> None:
        """Makes a step of the search on a path, and does what follows from it."""
        search, now = path.search, self._edge.now()
        size, state = search.size, search.state
        step(now)
        if search.size != size or (state is PathState.SEARCHING and search.state is not state):
            _log_size(host, search)
        if search.size != size:
            self._changed(host)
        elif search.state is PathState.NARROW and state is not PathState.NARROW:
            _log.warning("packets do not arrive at a host that answers otherwise", host=host, size=LEAST)
        self._wait(now)

    def _wait(self, now: float) -> None:
        """Sets the timer to the next probe."""
        at = min([path.search.next_deadline() for path in self._paths.values()], default=NEVER)
        # Never moved to a later time: a look that finds nothing due sets it again.
        if at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._edge.loop.call_later(max(0.0, ceil((at - now) * 1000) / 1000), self._look)

    def _look(self) -> None:
        """Sends the probes that are due."""
        self._timer, self._timer_at = None, NEVER
        for host, path in list(self._paths.items()):
            if path.search.next_deadline() <= self._edge.now():
                self._step(host, path, partial(self._probe, host, path))
        self._wait(self._edge.now())

    def _probe(self, host: int, path: _Path, now: float) -> None:
        address = self._unicast.addresses.get(host)
        if address is None:
            path.search.left(now)  # until `moved`
            return
        if self._edge.udp.queued:
            # A probe behind a queue would be answered late, and count as lost.
            path.search.put_off(now + _BUSY)
            return
        size = path.search.to_send(now)
        if not size:
            return
        # Odd, and thus never 0.
        nonce = int(self._edge.random.random() * 2**63) | 1
        own = self._edge.host
        probe = encode(control(Kind.PROBE, own, 0, 0, own, Probe(0, nonce).encode()), self._keys)
        self._edge.udp.send_unfragmented(padded(probe, self._edge.datagram_bytes(size)), address)
        self._edge.counters.probes_sent += 1
        path.sizes[nonce] = size
        if len(path.sizes) > _NONCES:
            del path.sizes[next(iter(path.sizes))]


def _log_size(host: int, search: PathSize) -> None:
    if search.state is PathState.SEARCHING:
        _log.warning("long packets do not arrive at a host", host=host, longest=search.most, used=search.size)
    elif search.is_short:
        _log.warning("longest packets that arrive at a host", host=host, size=search.size, of=search.most)
    else:
        _log.info("packets to a host", host=host, size=search.size)
