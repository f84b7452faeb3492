"""TLS for faces: a layer between an asyncio transport and a connection.

asyncio's own TLS drops a failed handshake: the client gets no alert, and no reason is reported. This layer
sends the alert, and reports the peer and the reason. OpenSSL works on two memory buffers; the raw transport
carries their bytes.

    state      raw bytes arrive    handshake fails      connection closes    raw transport lost
    SHAKING    next step           alert, then ENDED    -                    ENDED
    OPEN       to the connection   -                    notify, then ENDED   ENDED, connection is told
    ENDED      dropped             -                    -                    connection is told
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from treecast.middleware.api.private_file import Stamp, stamp_of
from treecast.middleware.model.visitors import Visitor

from .listening import Listeners, TlsSettings

SHAKING: Final = 0
OPEN: Final = 1
ENDED: Final = 2

_READ_BYTES: Final = 256 * 1024
_LINGER: Final = 2.0  # seconds that a client may take to read the alert


class TlsLayer(asyncio.Protocol):
    """One TLS connection. `connect` creates the connection above it when the handshake is done."""

    def __init__(
        self,
        face: Listeners,
        context: ssl.SSLContext,
        seconds: float,
        connect: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """`face` is told of the handshake's start, end and failure. `seconds` is its time limit."""
        self._face = face
        self._seconds = seconds
        self._connect = connect
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._state = SHAKING
        self._above: asyncio.BaseProtocol | None = None
        self._deliver: Callable[[bytes], None]
        self._timer: asyncio.TimerHandle | None = None
        self._visitor: Visitor | None = None  # until the handshake is done, or its socket is closed
        self.raw: asyncio.Transport

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._visitor = self._face.visitors.enter(peer, self, self._face.loop.time())
        if self._visitor is None:
            self._state = ENDED
            self.raw.abort()
            return
        self._face.shaking(self)
        self._timer = self._face.loop.call_later(
            self._seconds, self._refuse, f"no TLS handshake in {self._seconds:g} s"
        )

    def data_received(self, data: bytes) -> None:
        if self._state == ENDED:
            return
        self._incoming.write(data)
        if self._state == SHAKING:
            self._shake()
        if self._state == OPEN:
            self._read()

    def eof_received(self) -> bool:
        if self._state == SHAKING:
            self._refuse("the client left amid the TLS handshake")
        return False

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        self._leave()
        self._state = ENDED
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)

    # --- the handshake

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._refuse(why_refused(error))
            return
        self._end_handshake()
        self._leave()
        self._flush()
        self._state = OPEN
        self._above = above = self._connect()
        if isinstance(above, asyncio.BufferedProtocol):
            self._deliver = partial(self._fill, above)
        else:
            self._deliver = cast(asyncio.Protocol, above).data_received
        above.connection_made(TlsTransport(self))

    def wait_for_memory(self, waits: bool) -> None:
        """A handshake holds no request."""

    def abort(self) -> None:
        self.raw.abort()

    def _leave(self) -> None:
        """Gives the place among new connections back: to the connection above, or with the socket."""
        if self._visitor is not None:
            self._visitor.left()
            self._visitor = None

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._face.shaken(self)

    def _refuse(self, reason: str) -> None:
        """Reports `reason`, sends the alert if there is one, and closes after `_LINGER` seconds.

        If it closed at once, data that the client still sends would make the client lose the alert. It counts
        as a new connection until then, and gives way to others.
        """
        self._end_handshake()
        self._state = ENDED
        self._face.refused(_peer(self.raw), reason)
        self._flush()
        if self.raw.can_write_eof():
            self.raw.write_eof()
        self._face.loop.call_later(_LINGER, self.raw.abort)

    # --- when it is open

    def _read(self) -> None:
        assert self._above is not None
        chunks: list[bytes] = []
        over = False
        try:
            while chunk := self._tls.read(_READ_BYTES):
                chunks.append(chunk)
            over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # a close without notice, or bytes that are not TLS
            over = True
        self._flush()
        if chunks:
            self._deliver(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if over:
            self.close()

    def _fill(self, above: asyncio.BufferedProtocol, data: bytes) -> None:
        """Hands on data to a protocol that provides the memory for it, as asyncio does."""
        left = memoryview(data)
        while left and not self.closing:
            room = memoryview(above.get_buffer(len(left)))
            size = min(len(room), len(left))
            room[:size] = left[:size]
            above.buffer_updated(size)
            left = left[size:]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state == OPEN and data:
            self._tls.write(data)
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self.raw.is_closing():
            self.raw.write(self._outgoing.read())

    def close(self) -> None:
        """Sends the close notice, and closes when everything is written."""
        if self._state == OPEN:
            self._state = ENDED
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it asks to wait for the client's own notice
            self._flush()
        self.raw.close()

    @property
    def closing(self) -> bool:
        return self._state == ENDED or self.raw.is_closing()

    @property
    def tls(self) -> ssl.SSLObject:
        return self._tls


class TlsTransport(asyncio.Transport):
    """The transport of the connection above the layer."""

    def __init__(self, layer: TlsLayer) -> None:
        super().__init__()
        self._layer = layer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._layer.tls
        if name == "socket":  # nothing may be written to it past the layer
            return default
        return self._layer.raw.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._layer.raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._layer.raw.set_write_buffer_limits(high, low)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._layer.write(data)

    def pause_reading(self) -> None:
        self._layer.raw.pause_reading()

    def resume_reading(self) -> None:
        self._layer.raw.resume_reading()

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._layer.closing

    def close(self) -> None:
        self._layer.close()

    def abort(self) -> None:
        self._layer.raw.abort()


# The most common failures, by OpenSSL's name, and their meaning here.
_PLAIN: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client gave no certificate, and this listener asks for one",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS",
    "HTTP_REQUEST": "the client does not speak TLS but HTTP",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is older than 1.2",
}


def why_refused(error: ssl.SSLError) -> str:
    """Returns a description of a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate was refused: {error.verify_message}"
    reason = error.reason or str(error)
    if reason in _PLAIN:
        return _PLAIN[reason]
    name = reason.lower().replace("_", " ")
    if "ALERT" in reason:
        return f"the client ended the TLS handshake: {name}"
    return f"the TLS handshake failed: {name}"


def _peer(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a client that has gone"


class TlsFiles:
    """The files of a TLS listener, read again when they change. `context` is for new connections."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises OSError for unusable files."""
        self._settings = settings
        self._seen = self._stamp()
        self.context = tls_context(settings)

    @property
    def certificate(self) -> Path:
        return self._settings.certificate

    def look(self, *, again: bool = False) -> bool:
        """Reads the files if they have changed, or `again`. Returns whether it has.

        Raises OSError (ssl.SSLError is one) if they cannot be used: what was read before holds.
        """
        stamp = self._stamp()
        if stamp == self._seen and not again:
            return False
        self._seen = stamp
        self.context = tls_context(self._settings)
        return True

    def _stamp(self) -> tuple[Stamp | None, ...]:
        files = (self._settings.certificate, self._settings.key, self._settings.authority)
        return tuple([stamp_of(path) for path in files if path is not None])


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Returns the context of the TLS listener. Raises OSError (ssl.SSLError is one) for unusable files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(settings.certificate, settings.key)
    if settings.authority is not None:
        context.load_verify_locations(settings.authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
