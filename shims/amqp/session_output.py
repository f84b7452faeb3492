"""The output of a connection: gathered over one turn of the event loop and written once at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from pamqp import base

from .codec_methods import write_method

FULL: Final = 1024 * 1024  # limit of unsent bytes per turn; further messages wait in the queues


class SessionOutput:
    """The sending half of a connection. `wake` is called for the first output after `take_output`.

    `writable` is whether the client reads and the output of this turn is below its limit. `full` is whether
    that limit was reached; after writing the output, the caller then calls `Session.resume`. `depends` is
    whether the output promises something that must be stored first. `closing` is whether it is the last;
    `left`, whether the client asked for that.
    """

    def __init__(self, wake: Callable[[SessionOutput], None]) -> None:
        self.out = BytesWriter()
        self.writable = True
        self.full = False
        self.depends = False
        self.closing = False
        self.left = False
        self._wake = wake
        self._dirty = False
        self._congested = False

    def writer(self) -> BytesWriter:
        """Returns the output buffer. Call `written` after adding messages to it."""
        if not self._dirty:
            self._dirty = True
            self._wake(self)
        return self.out

    def written(self) -> None:
        if len(self.out) > FULL:
            self.writable = False
            self.full = True

    def send(self, channel: int, method: base.Frame) -> None:
        self.writer().write(write_method(channel, method))

    def take_output(self) -> bytes:
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
