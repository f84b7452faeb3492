"""What arrives at a host's sockets: bursts are taken from the kernel, and their segments go to the streams.

A lone message is not made to wait for the question whether there is more: that costs as much as to receive,
and the loop calls again where there is.
"""

from __future__ import annotations

import logging
from typing import Final

from treecast.middleware.model.complaints import Complaints
from treecast.middleware.wire import stare

from .carriers.labels import segments
from .carriers.sockets import BUFFER_BYTES
from .core.streams import EdgeFault, Streams
from .ways import End, Ways

_log = logging.getLogger(__name__)

_LOOK_EVERY: Final = 8  # turns that brought a message alone: then whether more wait is asked all the same


class Inlet:
    """One socket; `skip` bytes lie before each segment. All inlets of a host share the buffer."""

    def __init__(self, end: End, streams: Streams, buffer: memoryview, skip: int, bursts: int) -> None:
        self.several = False  # the last turn brought more than one burst
        self._end = end
        self._streams = streams
        self._buffer = buffer
        self._skip = skip
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
        return length == size and self._turn % _LOOK_EVERY != 0

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
        self._streams.burst(self._buffer, length, size, self._skip, now)


class LabelInlet(Inlet):
    """One whose packets have a stack of labels before the segment."""

    def __init__(
        self, end: End, streams: Streams, buffer: memoryview, bursts: int, complaints: Complaints
    ) -> None:
        super().__init__(end, streams, buffer, end.skip, bursts)
        self._complaints = complaints

    def _hand_on(self, length: int, size: int, now: float) -> None:
        for at, after in segments(self._buffer, length, size, self._skip):
            if at < 0:
                self._complaints.add(EdgeFault.NO_STACK)
            else:
                self._streams.carried(self._buffer, at, after, now)


class Inlets:
    """Those of all sockets that are open."""

    def __init__(self, ways: Ways, streams: Streams, bursts: int, complaints: Complaints) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        self._inlets: dict[End, Inlet] = {ways.udp: Inlet(ways.udp, streams, buffer, 0, bursts)}
        if ways.group_udp is not None:
            self._inlets[ways.group_udp] = Inlet(ways.group_udp, streams, buffer, stare.HEADER_SIZE, bursts)
        if ways.label_end is not None:
            self._inlets[ways.label_end] = LabelInlet(ways.label_end, streams, buffer, bursts, complaints)

    def of(self, end: End) -> Inlet:
        return self._inlets[end]

    def take_some(self, now: float) -> bool:
        """Whether all that had arrived anywhere was taken."""
        taken = True
        for inlet in self._inlets.values():
            taken = inlet.take_some(now) and taken
        return taken
