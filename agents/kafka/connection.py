"""`KafkaConnection`: one connection to one broker of a Kafka cluster.

A broker works on one request of a connection at a time and answers in order. What has to keep its order (the
produces of a partition) shares a connection; what waits long at the broker (a fetch, the join of a group) has
one of its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from treecast.middleware.api.discovery import Address
from treecast.middleware.wire.kafka_primitives import CodecError
from treecast.shims.kafka.codec_client import (
    correlation_of,
    decode_response,
    encode_request,
    shared_version,
)
from treecast.shims.kafka.messages import Row
from treecast.shims.kafka.versions import API_VERSIONS

from .log_in import LogIn, steps

CONNECT_SECONDS: Final = 10.0
CALL_SECONDS: Final = 30.0
_PREFIX: Final = 4
_MOST: Final = 256 << 20  # bytes of one answer
_VERSIONS_OF_VERSIONS: Final = (3, 0)
_UNSUPPORTED: Final = 35

Ranges = Mapping[int, tuple[int, int]]


class ConnectionLost(Exception):
    """The connection is over, or there is none. The text says why."""


class KafkaConnection(asyncio.BufferedProtocol):
    """A connection in use from `connect` to `close`. All calls come from the event loop."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.versions: Ranges = {}
        self.received = 0  # bytes
        self.sent = 0
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._next = 0
        self._frame = bytearray(_PREFIX)
        self._filled = 0
        self._in_body = False
        self._over: str | None = None

    # --- life

    @classmethod
    async def connect(
        cls, address: Address, tls: ssl.SSLContext | None, log_in: LogIn | None, client_id: str
    ) -> KafkaConnection:
        """Connects, asks which versions the broker serves, and logs in. Raises ConnectionLost."""
        made = cls(client_id)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: made,
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=address.host if tls is not None else None,
                )
                made.versions = await made._ask_versions()
                await made._log_in(log_in)
        except (OSError, ConnectionLost, CodecError, TimeoutError) as error:
            made.abort()
            reason = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
            raise ConnectionLost(f"{address}: {reason}") from error
        return made

    @property
    def open(self) -> bool:
        return self._over is None and self._transport is not None

    @property
    def busy(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting)

    def abort(self) -> None:
        self._end("it was closed here")
        if self._transport is not None:
            self._transport.abort()

    async def _ask_versions(self) -> Ranges:
        """Asks with the newest request first; a broker that does not know it answers as version 0."""
        values = {"client_software_name": "treecast", "client_software_version": "1"}
        for version in _VERSIONS_OF_VERSIONS:
            given = values if version >= 3 else {}
            frame = await self.request(
                lambda number, given=given, version=version: [
                    encode_request(API_VERSIONS, version, number, self.client_id, given)
                ]
            )
            if int.from_bytes(frame[_PREFIX : _PREFIX + 2], "big") == _UNSUPPORTED and version:
                continue
            answer = decode_response(API_VERSIONS, version, frame, header_tags=False)
            if answer.error_code:
                raise ConnectionLost(f"the broker refuses ApiVersions with error {answer.error_code}")
            return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        raise ConnectionLost("the broker serves no version of ApiVersions that is known here")

    async def _log_in(self, log_in: LogIn | None) -> None:
        if log_in is None:
            return
        conversation = steps(log_in, self.client_id)
        asked = next(conversation)
        while asked is not None:
            asked = conversation.send(await self.request(asked))

    # --- calls

    def request(self, encode: Any) -> asyncio.Future[memoryview]:
        """Sends a request; `encode` is called with its correlation id and returns the pieces of its frame.

        Returns the future frame of the answer, which fails with ConnectionLost.
        """
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self._over is not None or self._transport is None:
            answer.set_exception(ConnectionLost(self._over or "it is not open"))
            return answer
        number, self._next = self._next, (self._next + 1) & 0x7FFF_FFFF
        pieces: Sequence[Any] = encode(number)
        self._waiting.append((number, answer))
        self.sent += sum(map(len, pieces))
        self._transport.writelines(pieces)
        return answer

    async def call(
        self,
        key: int,
        values: Mapping[str, Any],
        *,
        most: int = 1 << 15,
        seconds: float = CALL_SECONDS,
        client_id: str | None = None,
    ) -> Row:
        """Makes a call in the highest shared version, `most` at most. Raises ConnectionLost or CodecError."""
        version = shared_version(key, self.versions, most)
        name = self.client_id if client_id is None else client_id
        asked = self.request(lambda number: [encode_request(key, version, number, name, values)])
        try:
            async with asyncio.timeout(seconds):
                return decode_response(key, version, await asked)
        except TimeoutError:
            self.abort()  # its answer would be taken for that of the next call
            raise ConnectionLost(f"no answer within {seconds:g} s") from None
        except asyncio.CancelledError:
            self.abort()
            raise

    # --- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error is not None else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        done, self._filled = self._frame, 0
        if self._in_body:
            self._frame, self._in_body = bytearray(_PREFIX), False
            self._answered(memoryview(done))
            return
        size = int.from_bytes(done, "big", signed=True)
        if not _PREFIX <= size <= _MOST:
            self._fail(
                f"the broker sent a frame of {size} bytes: it may not speak Kafka's protocol, or want TLS"
            )
            return
        self._frame, self._in_body = bytearray(size), True

    def eof_received(self) -> None:
        return None

    def _answered(self, frame: memoryview) -> None:
        if not self._waiting:
            self._fail("the broker sent an answer without a request")
            return
        number, answer = self._waiting.popleft()
        if correlation_of(frame) != number:
            self._waiting.appendleft((number, answer))
            self._fail("the broker's answers are out of order")
        elif not answer.done():
            answer.set_result(frame)

    def _fail(self, reason: str) -> None:
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if self._over is not None:
            return
        self._over = reason
        waiting, self._waiting = self._waiting, deque()
        for _, answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))
                answer.exception()  # the asker may have gone
