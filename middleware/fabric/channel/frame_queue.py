"""Outgoing frames of one connection: numbered, tagged, and joined for few writes."""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.buffers import Buffer

from .codec import HEADER_SIZE, Kind, Seal, pack_header
from .outgoing import Message

_JOIN: Final = 32 * 1024  # smaller parts are copied together, larger ones are sent in place


class FrameQueue:
    """The frames to send. They get their tags in the order of insertion."""

    def __init__(self) -> None:
        self.seal: Seal | None = None
        self._control: list[tuple[Kind, int, int, int, bytes]] = []  # number, call, body, payload
        self._joined = bytearray()
        self._parts: list[Buffer] = []

    def __bool__(self) -> bool:
        return bool(self._control)

    def control(
        self, kind: Kind, number: int = 0, call: int = 0, body: int = 0, payload: bytes = b""
    ) -> None:
        """Adds a small control frame, which goes before messages."""
        self._control.append((kind, number, call, body, payload))

    def forget_control(self) -> None:
        self._control.clear()

    def put_control(self) -> int:
        """Queues the frames added by `control`. Returns their bytes."""
        sent = 0
        for kind, number, call, body, payload in self._control:
            sent += self._put(kind, number, call, 0, body, payload, b"")
        self._control.clear()
        return sent

    def put_message(self, message: Message, more: Kind) -> int:
        """Queues the next frame of a message, of kind `more` after the first. Returns its bytes."""
        kind = more if message.begun else message.kind
        first, second = message.take()
        return self._put(
            kind, message.number, message.call, message.head_size, message.body_size, first, second
        )

    def take(self) -> list[Buffer]:
        """Returns all queued bytes. Large parts still belong to their messages."""
        if self._joined:
            self._flush()
        parts = self._parts
        self._parts = []
        return parts

    def _put(
        self, kind: Kind, number: int, call: int, head: int, body: int, first: Buffer, second: Buffer
    ) -> int:
        size = len(first) + len(second)
        header = pack_header(size, kind, number, call, head, body)
        self._joined += header
        if self.seal is not None and kind > Kind.REFUSE:
            self._joined += self.seal.tag_parts(header, first, second)
        self._add(first)
        self._add(second)
        return HEADER_SIZE + size

    def _add(self, part: Buffer) -> None:
        if len(part) < _JOIN:
            self._joined += part
        else:
            self._flush()
            self._parts.append(part)

    def _flush(self) -> None:
        # A copy, because the transport may keep it while `_joined` is filled again.
        self._parts.append(bytes(self._joined))
        self._joined.clear()
