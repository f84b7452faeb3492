"""What a connection has to send: gathered over one turn of the event loop, written once at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from pamqp import base

from .codec_methods import write_method

FULL: Final = 1024 * 1024  # unsent bytes of one turn; more waits in the queues


class SessionOutput:
    """The sending half. `wake` is told once that something was gathered since `take_output`.

    `writable`: the client reads, and not too much waits for this turn's end. `full`: so much did; who has
    written it calls `Session.resume`. `depends`: what is gathered promises something that has to be stored
    before. `closing`: what is gathered is the last that is sent.
    """

    def __init__(self, wake: Callable[[SessionOutput], None]) -> None:
        self.out = BytesWriter()
        self.writable = True
        self.full = False
        self.depends = False
        self.closing = False
        self._wake = wake
        self._dirty = False
        self._congested = False

    def writer(self) -> BytesWriter:
        """Where to write to. `written` is to be called after much was."""
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
        """All that is gathered."""
        data = self.out.getvalue()
        self.out.truncate(0)
        self._dirty = False
        self.depends = False
        self.writable = not self._congested and not self.closing
        return data

    def congest(self, congested: bool) -> None:
        """The client reads no more, or again."""
        self._congested = congested
        self.writable = not congested and not self.closing
