"""A host's MQTT face in memory: no sockets, and only the tests move the clock."""

from __future__ import annotations

import random
from pathlib import Path

from tests.unit.script import Script
from tests.unit.stores import flushed

from treecast.middleware.broker.pubsub import PubSub, PubSubSettings, open_journal
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.storage.disk import Disk
from treecast.shims.log_ins import Outcome
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Will,
    decode,
    encode,
)
from treecast.shims.mqtt.codec_properties import NONE, Properties
from treecast.shims.mqtt.codec_read import read_length
from treecast.shims.mqtt.restoring import restore
from treecast.shims.mqtt.session import Session
from treecast.shims.mqtt.session_output import Outputs, SessionOutput
from treecast.shims.mqtt.session_publishing import MqttCounting
from treecast.shims.mqtt.session_state import SessionState
from treecast.shims.mqtt.sessions import Sessions
from treecast.shims.mqtt.settings import MqttSettings


def packets_of(data: bytes, version: int) -> list[Packet]:
    """Returns all packets in `data`, which has to end with a packet."""
    found = []
    position = 0
    while position < len(data):
        size, body = read_length(data, position, len(data))
        assert size >= 0
        found.append(decode(data[position], data[body : body + size], version))
        position = body + size
    assert position == len(data)
    return found


class Client(Script):
    """One connection to a `MemoryHost`, and the edge of its session. Bytes are sent at once; `got()` returns
    the packets since its last call.
    """

    def __init__(self, host: MemoryHost, version: int = codec.V5) -> None:
        self.host = host
        self.version = version
        self.session = Session(host.sessions, host.outputs, host.counting, host.now, self)
        self.written = b""
        host.clients[self.session.output] = self
        self._packet_id = 0

    # --- the edge

    def write(self, chunks: list[bytes]) -> None:
        self.written += b"".join(chunks)
        self.session.connection.resume()

    def suspended(self) -> None:
        """The tests go on."""

    def going_on(self) -> None:
        """Bytes are given whenever the tests want to."""

    def checked(self, outcome: Outcome) -> None:
        self.session.checked(outcome, self.host.now)

    @property
    def state(self) -> SessionState | None:
        return self.session.connection.state

    # --- the client

    def send_bytes(self, data: bytes) -> None:
        self.session.receive(data, self.host.now)

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def got_bytes(self) -> bytes:
        self.host.end_turn()
        data, self.written = self.written, b""
        return data

    def give(self, *given: Packet | bytes) -> None:
        self.send_bytes(
            b"".join([one if isinstance(one, bytes) else encode(one, self.version) for one in given])
        )

    def take(self) -> list[Packet]:
        found = self.got()
        assert not any(isinstance(one, Disconnect) for one in found) or self.session.output.closing
        return found

    def got(self) -> list[Packet]:
        return packets_of(self.got_bytes(), self.version)

    def connect(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        user: str = "",
        **properties: object,
    ) -> Connack:
        """Connects and returns the first packet; the rest is left to `got`. The password of `user` is its
        name."""
        given = Properties(**properties) if properties else NONE  # type: ignore[arg-type]
        login = (user, user.encode()) if user else (None, None)
        self.send(Connect(self.version, client_id, clean, keep_alive, will, *login, given))
        data = self.got_bytes()
        size, body = read_length(data, 0, len(data))
        answer = decode(data[0], data[body : body + size], self.version)
        self.written = data[body + size :]
        assert isinstance(answer, Connack)
        return answer

    def next_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    def subscribe(self, *filters: str, qos: int = 0, identifier: int = 0, **options: object) -> bytes:
        """Subscribes and returns the reasons. Retained messages are left to `got`."""
        requests = tuple(FilterRequest(f.encode(), qos, **options) for f in filters)  # type: ignore[arg-type]
        given = Properties(subscription_ids=(identifier,)) if identifier else NONE
        self.send(Subscribe(self.next_id(), requests, given))
        data = self.got_bytes()
        size, body = read_length(data, 0, len(data))
        answer = decode(data[0], data[body : body + size], self.version)
        self.written = data[body + size :]
        assert isinstance(answer, Suback)
        return answer.reasons

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, **properties: object
    ) -> int:
        """Publishes and returns the packet id."""
        packet_id = self.next_id() if qos else 0
        given = Properties(**properties) if properties else NONE  # type: ignore[arg-type]
        self.send(Publish(topic.encode(), payload, qos, retain, False, packet_id, given))
        return packet_id

    def publishes(self) -> list[Publish]:
        """Returns the packets since the last call, which must all be publishes."""
        found = self.got()
        assert all(isinstance(packet, Publish) for packet in found), found
        return found  # type: ignore[return-value]

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.publishes()]

    def ack(self, kind: int, packet_id: int, reason: int = 0) -> None:
        self.send(Ack(kind, packet_id, reason))

    def leave(self, reason: int = 0, **properties: object) -> None:
        given = Properties(**properties) if properties else NONE  # type: ignore[arg-type]
        self.send(Disconnect(reason, given))
        self.host.end_turn()

    def drop(self) -> None:
        """Breaks the network connection."""
        self.session.lost(self.host.now)


class MemoryHost:
    """The face without its edge. `data`: the directory of the journal, if it has one."""

    def __init__(
        self,
        settings: MqttSettings | None = None,
        hub_settings: PubSubSettings | None = None,
        data: Path | None = None,
    ) -> None:
        self.settings = settings or MqttSettings()
        self.hub_settings = hub_settings or PubSubSettings()
        self.now = 1000.0
        self.data = data
        self.clients: dict[SessionOutput, Client] = {}
        self.counters = PubSubCounters()
        self._open()

    def _open(self) -> None:
        self.hub = PubSub(self.hub_settings, self.counters)
        self.hub.clock.wall = 1_700_000_000.0 + self.now
        if self.data is not None:
            journal, highest = open_journal(
                str(self.data), Disk(), self.hub_settings, self.counters, self.hub.retained, syncs=False
            )
            self.hub.use_journal(journal)
            self.hub.routes.begin_serials(highest)
        self.sessions = Sessions(self.hub, self.settings, random.Random(7))
        self.outputs = Outputs(lambda: None)
        self.counting = MqttCounting()
        restore(self.sessions, self.now)
        self._tick()

    def client(self, version: int = codec.V5) -> Client:
        return Client(self, version)

    def connected(self, client_id: str = "", version: int = codec.V5, **options: object) -> Client:
        """Makes a connected client."""
        client = self.client(version)
        answer = client.connect(client_id, **options)  # type: ignore[arg-type]
        assert answer.reason == 0
        return client

    def end_turn(self) -> None:
        """Acts as the edge does: stores durable state, then writes all output."""
        while True:
            if self.hub.journal is not None:
                assert flushed(self.hub.journal)
            outputs = self.outputs.take()
            if not outputs:
                break
            for output in outputs:
                output.edge.write(output.take())
        self.hub.fold()

    def crash(self, *, store: bool = True) -> None:
        """Kills the process and starts it again. `store`: the turn's end was stored before."""
        assert self.hub.journal is not None
        if store:
            assert flushed(self.hub.journal)
        self.hub.journal.log.close()
        self._open()

    def _tick(self) -> None:
        self.sessions.look_at_clients(self.now)
        self.sessions.tick(self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.hub.clock.wall += seconds
        self._tick()
        self.end_turn()


def ended(client: Client) -> Disconnect | None:
    """Returns the final DISCONNECT, if any; the connection has to be closing."""
    found = client.got()
    assert client.session.output.closing
    return found[-1] if found and isinstance(found[-1], Disconnect) else None
