"""Reception at a host's sockets: takes bursts from the kernel and hands their segments to the streams.

A single message is delivered without first asking the kernel for more. That question costs as much as a
receive, and the loop calls again if there is more.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from treecast.middleware.model.logs import Log

from .core.streams import Streams, Unwraps
from .sockets.udp import BUFFER_BYTES, UdpSocket

_log = Log(__name__)

_LARGE: Final = 8192  # bytes of a message that takes longer than asking whether there is more
_LOOK_EVERY: Final = 8  # after this many single messages, ask for more anyway
_BURST_LEAST: Final = 2048  # bytes that a burst counts as: reports and naks are small, and each costs a receive


class OtherEnd(Protocol):
    """A socket other than UDP, such as `sockets.ethernet.EthernetSocket`."""

    @property
    def sock(self) -> socket.socket: ...

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        """Returns (bytes, size of one packet) of the next burst. Raises BlockingIOError if there is none."""
        ...

    def flush(self) -> None:
        """Sends what waits, as far as the kernel accepts it."""

    def close(self) -> None: ...


End = UdpSocket | OtherEnd


class Inlet:
    """The receiving side of one socket. All inlets of a host share the buffer."""

    def __init__(
        self, end: End, streams: Streams, buffer: memoryview, unwraps: Unwraps | None, at_once: int
    ) -> None:
        self.several = False  # the last turn brought more than one burst
        self._end = end
        self._streams = streams
        self._buffer = buffer
        self._unwraps = unwraps
        self._at_once = at_once  # maximum bytes per turn
        self._turn = 0
        self._found = 0  # bursts in this turn

    def take_first(self, now: float) -> bool:
        """Takes the first burst of a turn. Returns False if there may be more, to be taken by `take_rest`."""
        self._turn += 1
        try:
            length, size = self._end.receive(self._buffer)
        except BlockingIOError:
            return True
        except OSError as error:
            _log.warning("receiving failed", error=error)
            return True
        self._hand_on(length, size, now)
        return length == size and length < _LARGE and self._turn % _LOOK_EVERY != 0

    def take_rest(self, now: float) -> None:
        """Takes what has arrived besides the first burst."""
        self._found = 1
        self.take_some(now)
        self.several = self._found > 1

    def take_turn(self, now: float) -> None:
        """Takes everything that has arrived, up to the limit of one turn."""
        self._found = 0
        self.take_some(now)
        self.several = self._found > 1

    def take_some(self, now: float) -> bool:
        """Takes bursts up to the limit. Returns whether everything that had arrived was taken.

        The limit counts bytes. If it counted bursts, an origin whose turns are long would take a few reports
        in each, and learn of arrivals seconds later.
        """
        left = self._at_once
        try:
            while left > 0:
                length, size = self._end.receive(self._buffer)
                self._found += 1
                left -= max(length, _BURST_LEAST)
                self._hand_on(length, size, now)
        except BlockingIOError:
            return True
        except OSError as error:
            _log.warning("receiving failed", error=error)
            return True
        return False

    def _hand_on(self, length: int, size: int, now: float) -> None:
        if self._unwraps is None:
            self._streams.burst(self._buffer, length, size, now)
        else:
            self._streams.wrapped(self._buffer, length, size, self._unwraps, now)


class Inlets:
    """The inlets of all open sockets. `at_once`: maximum bytes per socket and turn."""

    def __init__(self, streams: Streams, at_once: int) -> None:
        self._streams = streams
        self._at_once = at_once
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._inlets: dict[End, Inlet] = {}

    def add(self, end: End, unwraps: Unwraps | None) -> None:
        """Adds an end. `unwraps` finds the segments in its packets; None: the packets are bare segments."""
        self._inlets[end] = Inlet(end, self._streams, self._buffer, unwraps, self._at_once)

    def remove(self, end: End) -> None:
        """Removes an end, if it was added."""
        self._inlets.pop(end, None)

    def of(self, end: End) -> Inlet:
        return self._inlets[end]

    def take_some(self, now: float) -> bool:
        """Takes bursts from all ends. Returns whether everything that had arrived was taken."""
        taken = True
        for inlet in self._inlets.values():
            taken = inlet.take_some(now) and taken
        return taken
