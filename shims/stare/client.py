"""STARE's clients for Python: a VNF of this host, for asyncio and for threads.

    async with await stare.connect("tracker") as vnf:            # finds the daemon by itself
        state = await vnf.state("mobility/x")
        await vnf.subscribe(state)
        await vnf.publish(state, b"...")
        async for update in vnf: ...                             # update.state, .vnf, .number, .value

    with stare.Vnf("tracker") as vnf:                            # the same, blocking
        vnf.publish(vnf.state("mobility/x"), b"...")
        update = vnf.receive(timeout=1.0)

The daemon is the one at `TREECAST_STARE` (HOST:PORT), else the one whose socket is in the runtime directory,
else localhost:65431. Updates wait in the application's memory until it takes them. If the process itself does
not read, older updates of a state are replaced by newer ones; the last one is never lost.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from msgspec import Struct

from treecast.middleware.api.discovery import Endpoint, find_face

from .codec import VERSION, Code, CodecError, Cutter, Frame, Type, encode

_CHUNK = 1 << 16
_CODES = frozenset(int(code) for code in Code)


class Update(Struct, frozen=True):
    """One update of a subscribed state. `vnf`: the publisher; `number`: its update number for this state."""

    state: int
    vnf: int
    number: int
    value: bytes


class StareError(Exception):
    """The daemon refused a request. `code` states the reason."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConnectionLost(StareError):
    """The daemon has ended, or closed the connection."""


def _error(frame: Frame) -> StareError:
    known = Code(frame.code) if frame.code in _CODES else Code.INTERNAL
    return (ConnectionLost if frame.type is Type.ERROR else StareError)(known, frame.text)


def _update(frame: Frame) -> Update:
    return Update(frame.state, frame.vnf, frame.number, frame.value)


class AsyncVnf:
    """Made by `connect`. Calls may overlap; one task iterates over the updates."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.id = 0
        self.largest = 0  # bytes of the largest state
        self._reader = reader
        self._writer = writer
        self._cutter = Cutter()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._updates: asyncio.Queue[Update | None] = asyncio.Queue()
        self._lost: StareError | None = None
        self._task: asyncio.Task[None] | None = None

    async def _begin(self, name: str) -> None:
        welcome: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[0] = welcome
        self._send(Frame(Type.HELLO, version=VERSION, text=name))
        self._task = asyncio.create_task(self._read())
        frame = await welcome
        self.id, self.largest = frame.vnf, frame.number

    async def _read(self) -> None:
        lost: StareError = ConnectionLost(Code.CLOSING, "the daemon has gone")
        try:
            while data := await self._reader.read(_CHUNK):
                for frame in self._cutter.receive(data):
                    if frame.type is Type.ERROR:
                        lost = _error(frame)
                    else:
                        self._take(frame)
        except (OSError, CodecError) as error:
            lost = ConnectionLost(Code.PROTOCOL, str(error))
        self._end(lost)

    def _take(self, frame: Frame) -> None:
        if frame.type is Type.UPDATE:
            self._updates.put_nowait(_update(frame))
            return
        waiting = self._waiting.pop(0 if frame.type is Type.WELCOME else frame.request, None)
        if waiting is None or waiting.done():
            return
        if frame.type is Type.REFUSED:
            waiting.set_exception(_error(frame))
        else:
            waiting.set_result(frame)

    def _end(self, lost: StareError) -> None:
        self._lost = self._lost or lost
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._lost)
        self._waiting.clear()
        self._updates.put_nowait(None)

    def _send(self, frame: Frame) -> None:
        if self._lost is not None:
            raise self._lost
        self._writer.write(encode(frame))

    async def _ask(self, type: Type, state: int = 0, text: str = "", value: bytes = b"") -> Frame:
        request = next(self._numbers)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        self._send(Frame(type, request=request, state=state, text=text, value=value))
        await self._writer.drain()
        return await answer

    async def state(self, name: str) -> int:
        """Returns the id of the state of this name, levels joined by `/`; the same on all hosts of the
        cluster.
        """
        return (await self._ask(Type.STATE, text=name)).state

    async def subscribe(self, state: int) -> bool:
        """Subscribes to the state's updates, beginning with the last ones. Returns whether a switch has
        acknowledged it.
        """
        return bool((await self._ask(Type.SUBSCRIBE, state)).number)

    async def unsubscribe(self, state: int) -> None:
        await self._ask(Type.UNSUBSCRIBE, state)

    async def publish(self, state: int, value: bytes) -> int:
        """Returns the update's number. Raises StareError if it is refused."""
        return (await self._ask(Type.PUBLISH, state, value=value)).number

    def publish_soon(self, state: int, value: bytes) -> None:
        """Publishes without waiting for an answer: a refusal is not reported."""
        self._send(Frame(Type.PUBLISH, state=state, value=value))

    async def drain(self) -> None:
        """Waits until published updates are on their way to the daemon."""
        await self._writer.drain()

    async def __aiter__(self) -> AsyncIterator[Update]:
        while (update := await self._updates.get()) is not None:
            yield update
        assert self._lost is not None
        raise self._lost

    async def close(self) -> None:
        """Ends the VNF."""
        self._end(ConnectionLost(Code.CLOSING, "closed by the application"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass

    async def __aenter__(self) -> AsyncVnf:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def connect(
    name: str = "", address: tuple[str, int] | None = None, environment: Mapping[str, str] | None = None
) -> AsyncVnf:
    """Returns a VNF at the daemon of this host, or at `address`. Raises OSError if nobody listens. Raises
    StareError.
    """
    endpoint = None if address is not None else _found(environment)
    if endpoint is not None and endpoint.socket is not None:
        reader, writer = await asyncio.open_unix_connection(str(endpoint.socket))
    else:
        host, port = address or (endpoint.address.host, endpoint.address.port)  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection(host, port)
    vnf = AsyncVnf(reader, writer)
    try:
        await vnf._begin(name)
    except BaseException:
        await vnf.close()
        raise
    return vnf


def _found(environment: Mapping[str, str] | None) -> Endpoint:
    return find_face("stare") if environment is None else find_face("stare", environment)


class Vnf:
    """The same for threads: every call waits for its answer, for `timeout` seconds at most (TimeoutError)."""

    def __init__(
        self,
        name: str = "",
        address: tuple[str, int] | None = None,
        *,
        timeout: float = 30.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout = timeout
        self._sock = self._connect(address, environment)
        self._cutter = Cutter()
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Frame | StareError]] = {}
        self._updates: queue.SimpleQueue[Update | None] = queue.SimpleQueue()
        self._lost: StareError | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="stare", daemon=True)
        self._thread.start()
        try:
            welcome = self._call(0, Frame(Type.HELLO, version=VERSION, text=name))
        except BaseException:
            self.close()
            raise
        self.id, self.largest = welcome.vnf, welcome.number

    @staticmethod
    def _connect(address: tuple[str, int] | None, environment: Mapping[str, str] | None) -> socket.socket:
        if address is not None:
            return socket.create_connection(address)
        endpoint = _found(environment)
        if endpoint.socket is None:
            return socket.create_connection((endpoint.address.host, endpoint.address.port))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(endpoint.socket))
        except OSError:
            sock.close()
            raise
        return sock

    def _read(self) -> None:
        lost: StareError = ConnectionLost(Code.CLOSING, "the daemon has gone")
        try:
            while data := self._sock.recv(_CHUNK):
                for frame in self._cutter.receive(data):
                    if frame.type is Type.ERROR:
                        lost = _error(frame)
                    else:
                        self._take(frame)
        except (OSError, CodecError) as error:
            lost = ConnectionLost(Code.PROTOCOL, str(error))
        with self._lock:
            self._lost = lost
            for answers in self._answers.values():
                answers.put(lost)
        self._updates.put(None)

    def _take(self, frame: Frame) -> None:
        if frame.type is Type.UPDATE:
            self._updates.put(_update(frame))
            return
        with self._lock:
            answers = self._answers.get(0 if frame.type is Type.WELCOME else frame.request)
        if answers is not None:
            answers.put(_error(frame) if frame.type is Type.REFUSED else frame)

    def _call(self, request: int, frame: Frame) -> Frame:
        answers: queue.SimpleQueue[Frame | StareError] = queue.SimpleQueue()
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._answers[request] = answers
            self._sock.sendall(encode(frame))
        try:
            answer = answers.get(timeout=self._timeout)
        except queue.Empty:
            raise TimeoutError(f"no answer to {frame.type.name} within {self._timeout:g} s") from None
        finally:
            with self._lock:
                del self._answers[request]
        if isinstance(answer, StareError):
            raise answer
        return answer

    def _ask(self, type: Type, state: int = 0, text: str = "", value: bytes = b"") -> Frame:
        request = next(self._numbers)
        return self._call(request, Frame(type, request=request, state=state, text=text, value=value))

    def state(self, name: str) -> int:
        """See `AsyncVnf.state`."""
        return self._ask(Type.STATE, text=name).state

    def subscribe(self, state: int) -> bool:
        """See `AsyncVnf.subscribe`."""
        return bool(self._ask(Type.SUBSCRIBE, state).number)

    def unsubscribe(self, state: int) -> None:
        self._ask(Type.UNSUBSCRIBE, state)

    def publish(self, state: int, value: bytes) -> int:
        """See `AsyncVnf.publish`."""
        return self._ask(Type.PUBLISH, state, value=value).number

    def receive(self, timeout: float | None = None) -> Update | None:
        """Returns the next update; None on a timeout. Raises ConnectionLost if no more can arrive."""
        try:
            update = self._updates.get(timeout=timeout)
        except queue.Empty:
            return None
        if update is None:
            self._updates.put(None)
            assert self._lost is not None
            raise self._lost
        return update

    def close(self) -> None:
        """Ends the VNF."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._thread.join(self._timeout)
        self._sock.close()

    def __enter__(self) -> Vnf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
