"""What arrives at a host's sockets: bursts are taken from the kernel, and their segments go to the streams.

A lone message is not made to wait for the question whether there is more: that costs as much as to receive,
and the loop calls again where there is.
"""

from __future__ import annotations

import logging
import socket
from typing import Final, Protocol

from .core.streams import Streams, Unwraps
from .sockets.udp import BUFFER_BYTES, UdpSocket

_log = logging.getLogger(__name__)

_LARGE: Final = 8192  # bytes of a message that takes longer than the question whether there is more
_LOOK_EVERY: Final = 8  # turns that brought a message alone: then whether more wait is asked all the same


class OtherEnd(Protocol):
    """A socket that is none of UDP's, as `sockets.ethernet.EthernetSocket`."""

    @property
    def sock(self) -> socket.socket: ...

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        """(bytes, size of one packet) of the next burst. BlockingIOError where there is none."""
        ...

    def flush(self) -> None:
        """Sends what waits, as far as the kernel takes it."""

    def close(self) -> None: ...


End = UdpSocket | OtherEnd


class Inlet:
    """One socket. All inlets of a host share the buffer."""

    def __init__(
        self, end: End, streams: Streams, buffer: memoryview, unwraps: Unwraps | None, bursts: int
    ) -> None:
        self.several = False  # the last turn brought more than one burst
        self._end = end
        self._streams = streams
        self._buffer = buffer
        self._unwraps = unwraps
        self._bursts = bursts  # at most in a turn
        self._turn = 0
        self._found = 0  # bursts of this turn

    def take_first(self, now: float) -> bool:
        """Takes the first burst of a turn. False: there may be more, and `take_rest` is to ask for it."""
        self._turn += 1
        try:
            length, size = self._end.receive(self._buffer)
        except BlockingIOError:
            return True
        except OSError as error:
            _log.warning("fabric: receiving failed: %s", error)
            return True
        self._hand_on(length, size, now)
        return length == size and length < _LARGE and self._turn % _LOOK_EVERY != 0

    def take_rest(self, now: float) -> None:
        """What has come beside the first burst."""
        self._found = 1
        self.take_some(now)
        self.several = self._found > 1

    def take_turn(self, now: float) -> None:
        """All of a turn, or as much as one takes."""
        self._found = 0
        self.take_some(now)
        self.several = self._found > 1

    def take_some(self, now: float) -> bool:
        """Whether all that had arrived was taken."""
        try:
            for _ in range(self._bursts):
                length, size = self._end.receive(self._buffer)
                self._found += 1
                self._hand_on(length, size, now)
        except BlockingIOError:
            return True
        except OSError as error:
            _log.warning("fabric: receiving failed: %s", error)
            return True
        return False

    def _hand_on(self, length: int, size: int, now: float) -> None:
        if self._unwraps is None:
            self._streams.burst(self._buffer, length, size, now)
        else:
            self._streams.wrapped(self._buffer, length, size, self._unwraps, now)


class Inlets:
    """Those of all sockets that are open. `bursts`: so many of one of them in a turn, at most."""

    def __init__(self, streams: Streams, bursts: int) -> None:
        self._streams = streams
        self._bursts = bursts
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._inlets: dict[End, Inlet] = {}

    def add(self, end: End, unwraps: Unwraps | None) -> None:
        """Takes from this end, too. `unwraps` finds the segments in its packets; None: they are nothing
        else."""
        self._inlets[end] = Inlet(end, self._streams, self._buffer, unwraps, self._bursts)

    def remove(self, end: End) -> None:
        """Takes from this end no more; it need not have been taken from."""
        self._inlets.pop(end, None)

    def of(self, end: End) -> Inlet:
        return self._inlets[end]

    def take_some(self, now: float) -> bool:
        """Whether all that had arrived anywhere was taken."""
        taken = True
        for inlet in self._inlets.values():
            taken = inlet.take_some(now) and taken
        return taken
