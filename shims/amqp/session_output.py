"""The output of a connection: gathered over one turn of the event loop and written once at its end."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from pamqp import base

from .codec_deliver import write_confirm
from .codec_methods import write_method
from .session_waiting import Edge

FULL: Final = 1024 * 1024  # limit of unsent bytes per turn; further messages wait in the queues


class SessionOutput:
    """The sending half of a connection. `edge` learns of the first output after `take`.

    `writable` is whether the client reads and the output of this turn is below its limit. `full` is whether
    that limit was reached; after writing the output, the caller then calls `Session.resume`. `depends` is
    whether the output promises something that must be stored first, and `shares` the version of definitions
    that other hosts have to know first. `closing` is whether it is the last; `left`, whether the client asked
    for that.
    """

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.most = FULL  # unsent bytes in a turn; less where a quota is
        self.out = BytesWriter()
        self.writable = True
        self.full = False
        self.depends = False
        self.shares = 0
        self.closing = False
        self.left = False
        self._dirty = False
        self._congested = False

    def writer(self) -> BytesWriter:
        """Returns the output buffer. Call `written` after adding messages to it."""
        if not self._dirty:
            self._dirty = True
            self.edge.woken()
        return self.out

    def written(self) -> None:
        if len(self.out) > self.most:
            self.writable = False
            self.full = True

    def send(self, channel: int, method: base.Frame) -> None:
        self.writer().write(write_method(channel, method))

    def take(self) -> bytes:
        """Removes and returns the gathered output."""
        data = self.out.getvalue()
        self.out.truncate(0)
        self._dirty = False
        self.depends = False
        self.writable = not self._congested and not self.closing
        return data

    def congest(self, congested: bool) -> None:
        """Records whether the client has stopped reading."""
        self._congested = congested
        self.writable = not congested and not self.closing

    def end(self) -> None:
        """Marks the gathered output as the last."""
        self.closing = True
        self.writable = False
        self.writer()


class Confirms:
    """The confirms of a channel, gathered until the chunk ends. `on`: the channel is in confirm mode."""

    def __init__(self, output: SessionOutput, number: int) -> None:
        self.on = False
        self._output = output
        self._number = number
        self._publish_tag = 0  # confirm tag of the last publish
        self._confirmed_up_to = 0
        self.gathered: list[tuple[int, bool]] = []  # (tag of the last publish, whether all were taken)

    def add(self, refused: list[int], count: int) -> None:
        """Gathers the confirms of `count` publishes, of which those at the indexes `refused` were refused."""
        done = 0
        for number in refused:
            self._confirmed(number - done, True)
            self._confirmed(1, False)
            done = number + 1
        self._confirmed(count - done, True)

    def _confirmed(self, count: int, taken: bool) -> None:
        if count == 0:
            return
        self._publish_tag += count
        if self.gathered and self.gathered[-1][1] == taken:
            self.gathered[-1] = (self._publish_tag, taken)
        else:
            self.gathered.append((self._publish_tag, taken))

    def write(self) -> None:
        """Writes the pending confirms. They are in order, so one can cover all publishes before it."""
        out = self._output.writer()
        before = self._confirmed_up_to
        for tag, taken in self.gathered:
            write_confirm(out, self._number, tag, tag - before > 1, taken)
            before = tag
        self._confirmed_up_to = before
        self.gathered = []
