"""The fuzz targets: each takes bytes, and raises only the errors that are meant for bad bytes."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.mqtt.face import MemoryHost
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.relay.events.batches import RunEvent, events_of
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311, MqttError
from treecast.shims.mqtt.codec_packets import Connect, FilterRequest, Subscribe, decode, encode
from treecast.shims.mqtt.codec_properties import Properties

Target = Callable[[bytes], None]

_NEIGHBOUR = "#"


def packets(data: bytes) -> None:
    """Decodes a packet's body of any type and version, or reports a broken rule."""
    if not data:
        return
    for version in (V311, V5):
        try:
            decode(data[0], data[1:], version)
        except MqttError:
            pass


class _Session:
    """Clients of one host in memory. The first byte selects the version and where the bytes are cut."""

    def __init__(self) -> None:
        self._host = MemoryHost()
        self._neighbour = self._host.connected("neighbour")
        self._neighbour.subscribe(_NEIGHBOUR)

    def __call__(self, data: bytes) -> None:
        if not data:
            return
        host, first = self._host, data[0]
        client = host.client(V5 if first & 1 else V311)
        if not first & 2:
            given = Properties(session_expiry=10) if first & 1 else Properties()
            client.send(Connect(client.version, f"c{first & 4}", bool(first & 8), properties=given))
            client.send(Subscribe(1, (FilterRequest(b"a/+", first >> 4 & 1),)))
        cut = 1 + (first >> 5) * 7
        for at in range(1, len(data), cut):
            client.send_bytes(data[at : at + cut])
        host.end_turn()
        assert client.session.output.phase in range(3)
        client.drop()
        del host.clients[client.session.output]
        self._neighbour.got_bytes()
        assert self._neighbour.session.output.failure == ""
        if len(host.sessions) > 100:
            self.__init__()  # type: ignore[misc]


def batches(data: bytes) -> None:
    """Decodes a batch of an event stream."""
    try:
        for event in events_of(data):
            assert isinstance(event, RunEvent) or event.message.qos < 3
    except TreecastError:
        pass


TARGETS: dict[str, Target] = {"packets": packets, "session": _Session(), "batches": batches}

SEEDS = [
    encode(Connect(V5, "a", True), V5),
    encode(Subscribe(1, (FilterRequest(b"a/#", 1),)), V5),
    bytes([codec.PUBLISH << 4 | 2, 7, 0, 3]) + b"a/b\0\1",
]
