"""A face over a real broker in a temporary directory, and clients that talk to it without a socket.

The clients use kafka-python's own request and response classes, an independent codec.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.unit.kafka.own_messages import kafka_python

from treecast.middleware.broker import Broker, BrokerSettings, NewTopic
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host
from treecast.middleware.model.records import Record
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.kafka.connection import Connection
from treecast.shims.kafka.server import KafkaFace
from treecast.shims.kafka.settings import KafkaSettings
from treecast.shims.kafka.versions import APIS

NODE_ID = 7
NOW_MS = 1_700_000_000_000


def struct_of(cls: Any, values: Mapping[str, Any], version: int) -> Any:
    """Makes kafka-python's struct from these values (nested ones as mappings), with the version's fields
    only.
    """
    built: dict[str, Any] = {}
    for name, value in values.items():
        field = cls.fields[name]
        if not field.for_version_q(version):
            continue
        if value is not None and field.is_struct_array():
            value = [struct_of(field.data_class, row, version) for row in value]
        built[name] = value
    return cls(version=version, **built)


class MemoryTransport(asyncio.Transport):
    """Collects the written bytes; `stuck` behaves like a client that does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.arrived = asyncio.Event()
        self.protocol: Connection | None = None
        self.stuck = False
        self.high = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.1.2.3", 4567), "sockname": ("10.9.8.7", 9092)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return len(self.sent) if self.stuck else 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.sent += data
        self.arrived.set()
        if self.stuck and len(self.sent) > self.high and self.protocol is not None:
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.arrived.set()
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class Client:
    """One connection, whose requests and responses are kafka-python's."""

    def __init__(self, face: KafkaFace) -> None:
        self.transport = MemoryTransport()
        self.connection = Connection(face)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self._correlation = 0
        self._received = 0

    def feed(self, data: bytes) -> None:
        """Delivers bytes as a socket does: as much as fits at a time."""
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)

    def request(self, api: str, version: int, /, client_id: str | None = "test", **fields: Any) -> bytes:
        """Returns a framed request."""
        message = struct_of(kafka_python(f"{api}Request"), fields, version)
        self._correlation += 1
        message.with_header(correlation_id=self._correlation, client_id=client_id)
        return bytes(message.encode(header=True, framed=True))

    def send(self, api: str, version: int, /, **fields: Any) -> None:
        self.feed(self.request(api, version, **fields))

    async def frame(self) -> bytes:
        """Returns the next response without its size."""
        sent = self.transport.sent
        while len(sent) < 4 or len(sent) < 4 + struct.unpack_from(">i", sent)[0]:
            assert not self.transport.closed, "closed without a response"
            self.transport.arrived.clear()
            await asyncio.wait_for(self.transport.arrived.wait(), 20)
        (size,) = struct.unpack_from(">i", sent)
        frame = bytes(sent[4 : 4 + size])
        del sent[: 4 + size]
        return frame

    async def receive(self, api: str, version: int) -> Any:
        frame = await self.frame()
        cls = kafka_python(f"{api}Response")
        flexible = version >= next(a.flexible for a in APIS.values() if a.name == api)
        header = 5 if flexible and api != "ApiVersions" else 4
        self._received += 1
        assert struct.unpack_from(">i", frame) == (self._received,), "a response out of order"
        return cls.decode(frame[header:], version=version)

    async def nothing(self) -> None:
        """Gives the loop time to respond, and checks that it does not."""
        for _ in range(20):
            await asyncio.sleep(0)
        assert not self.transport.sent

    async def call(self, api: str, version: int, /, **fields: Any) -> Any:
        self.send(api, version, **fields)
        return await self.receive(api, version)


def batch(*values: bytes, **options: Any) -> bytes:
    records = [Record(b"k%d" % n, value, (), NOW_MS + n) for n, value in enumerate(values)]
    return bytes(build_batch(records, **options))


@pytest.fixture
def make_batch() -> Callable[..., bytes]:
    return batch


@pytest_asyncio.fixture
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """A broker; its settings may be given as the parameter."""
    settings = BrokerSettings(
        data=tmp_path / "data",
        fsync=FsyncPolicy.NEVER,
        group_initial_rebalance_delay_ms=0,
        topic_defaults={"retention.ms": "1000000000000"},
        **getattr(request, "param", {}),
    )
    broker = Broker(
        settings, Host(NODE_ID, "host"), Counters(), clock=lambda: NOW_MS / 1000, rng=random.Random(1)
    )
    await broker.start()
    await broker.cluster.definitions.create_topic(NewTopic("topic", 2, {"max.message.bytes": "5000"}))
    yield broker
    await broker.close()


@pytest_asyncio.fixture
async def face(broker: Broker) -> AsyncIterator[KafkaFace]:
    face = KafkaFace(broker, KafkaSettings(port=0, send_buffer_bytes=10_000), broker.counters.face("kafka"))
    await face.start()
    yield face
    await face.close(0.2)


@pytest.fixture
def client(face: KafkaFace) -> Client:
    return Client(face)


@pytest.fixture
def connect(face: KafkaFace) -> Callable[[], Client]:
    return lambda: Client(face)
