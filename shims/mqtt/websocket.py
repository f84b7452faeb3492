"""WebSocket framing (RFC 6455) of MQTT, section 6 of MQTT 5.0, with the sans-I/O layer of `websockets`.

Imported when the first client speaks HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from treecast.middleware.model.web_callers import WebCallers

_log = logging.getLogger("treecast.mqtt.websocket")
_log.setLevel(logging.WARNING)  # below this level it logs each connection

_ABNORMAL: Final = 1003  # unsupported data type
_NORMAL: Final = 1000
_DATA: Final = (Opcode.BINARY, Opcode.CONT)
_FRAME_BYTES: Final = 64 * 1024
_LONGEST_NAME: Final = 200  # characters of a foreign name that are quoted


class WebSocket:
    """Translates between network bytes and MQTT bytes. `closed` is whether the WebSocket has ended, `refusal`
    why its handshake was refused, or ""."""

    def __init__(self, max_bytes: int, callers: WebCallers, reached: str) -> None:
        """`max_bytes` is the largest MQTT packet; a frame may be slightly larger. `reached`: the address of
        this host that the client reached, "" for a Unix socket, which no browser reaches."""
        self.closed = False
        self.refusal = ""
        self._callers = callers
        self._reached = reached
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol("mqtt"), Subprotocol("mqttv3.1")],
            max_size=max_bytes + _FRAME_BYTES,
            logger=_log,
        )

    @property
    def memory(self) -> int:
        """The bytes of the frame that has arrived in part."""
        return len(self._protocol.reader.buffer)

    def receive(self, data: bytes) -> list[bytes]:
        """Returns the MQTT bytes in `data`. Packets need not be aligned with frames [MQTT-6.0.0-2]."""
        if self.closed:
            return []
        self._protocol.receive_data(data)
        found: list[bytes] = []
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._answer(event)
                if self._protocol.state is not OPEN:  # frames may have come with a handshake that is refused
                    self.closed = True
                    return []
            elif isinstance(event, Frame):
                self._frame(event, found)
        if self._protocol.close_expected() or self._protocol.parser_exc is not None:
            self.closed = True
        return found

    def _answer(self, request: Request) -> None:
        protocol = self._protocol
        host, origin, site = [
            ",".join(request.headers.get_all(name)) for name in ("Host", "Origin", "Sec-Fetch-Site")
        ]
        if self._reached and host and not self._callers.knows(host, self._reached):
            text = f"this daemon does not know itself as {host[:_LONGEST_NAME]!r}: --mqtt-names allows names"
            response = protocol.reject(HTTPStatus.MISDIRECTED_REQUEST, f"{text}\n")
            self.refusal = "a WebSocket for another host's name"
        elif self._reached and not self._callers.admits(host, origin, site):
            shown = origin[:_LONGEST_NAME]
            text = f"pages of {shown!r} may not use MQTT here: --mqtt-origins allows origins"
            response = protocol.reject(HTTPStatus.FORBIDDEN, f"{text}\n")
            self.refusal = "a WebSocket from a foreign web page"
        else:
            response = protocol.accept(request)
        protocol.send_response(response)

    def _frame(self, frame: Frame, found: list[bytes]) -> None:
        if frame.opcode in _DATA:
            if frame.data:
                found.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:  # not allowed [MQTT-6.0.0-1]
            self._protocol.fail(_ABNORMAL, "MQTT comes in binary frames")
            self.closed = True

    def send(self, chunks: Sequence[bytes]) -> list[bytes]:
        """Returns the network bytes for `chunks` of MQTT, preceded by answers of the framing itself."""
        out = [data for data in self._protocol.data_to_send() if data]
        if chunks and self._protocol.state is OPEN:
            for chunk in chunks:
                self._protocol.send_binary(chunk)
            out += [data for data in self._protocol.data_to_send() if data]
        return out

    def close(self) -> list[bytes]:
        """Returns the network bytes of a closing frame."""
        if self._protocol.state is OPEN:
            try:
                self._protocol.send_close(_NORMAL)
            except InvalidState:
                return []
        return [data for data in self._protocol.data_to_send() if data]
