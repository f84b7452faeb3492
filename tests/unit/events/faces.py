"""MQTT clients at the hosts of a `World`: real sessions, whose output is written with the host's turn."""

from __future__ import annotations

import random

from tests.unit.events.world import TestHost
from tests.unit.mqtt.face import Client

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec_packets import Ack, FilterRequest, Publish, Subscribe, Unsubscribe
from treecast.shims.mqtt.restoring import restore
from treecast.shims.mqtt.session_output import Outputs, SessionOutput
from treecast.shims.mqtt.session_publishing import MqttCounting
from treecast.shims.mqtt.sessions import Sessions
from treecast.shims.mqtt.settings import MqttSettings


class Face:
    """The face of one host, made between the host's start and `TestHost.share`. Implements `turn.Speaker`."""

    def __init__(self, host: TestHost) -> None:
        self.host = host
        self.hub = host.hub
        self.now = 1000.0
        self.clients: dict[SessionOutput, Client] = {}
        self.sessions = Sessions(host.hub, MqttSettings(), random.Random(7))
        self.outputs = Outputs(host.turn.ask)
        self.counting = MqttCounting()
        self._gathered: list[tuple[SessionOutput, list[bytes]]] = []
        restore(self.sessions, self.now)
        host.turn.add_speaker(self)

    def gather(self) -> None:
        self._gathered += [(output, output.take()) for output in self.outputs.take()]

    def say(self) -> None:
        gathered, self._gathered = self._gathered, []
        for output, chunks in gathered:
            output.edge.write(chunks)

    def refuse(self) -> None:
        self._gathered.clear()

    def end_turn(self) -> None:
        self.host.turn.end()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.sessions.tick(self.now)


class Member:
    """A client that obeys the protocol. `lasting`: its session outlives its connections. `got`: the payloads
    that it has received, in order; of a QoS 2 message, once per packet id."""

    def __init__(self, name: str, *, lasting: bool = False, window: int = 100) -> None:
        self.name = name
        self.lasting = lasting
        self.window = window
        self.got: list[bytes] = []
        self.acknowledges = True
        self._face: Face | None = None
        self._client: Client | None = None
        self._open: set[int] = set()  # packet ids of QoS 2 that are not released

    @property
    def online(self) -> bool:
        return self._client is not None

    def connect(self, face: Face, *, clean: bool | None = None) -> Member:
        clean = not self.lasting if clean is None else clean
        self._face = face
        client = self._client = Client(face)  # type: ignore[arg-type]
        expiry = 1000 if self.lasting else 0
        answer = client.connect(self.name, clean=clean, session_expiry=expiry, receive_maximum=self.window)
        assert answer.reason == 0
        if not answer.session_present:
            self._open.clear()
        return self

    def share(self, filter: str = "t/#", qos: int = 2) -> Member:
        """Subscribes as a member of the shared subscription `g`; `collect` finds the SUBACK."""
        assert self._client is not None
        requests = (FilterRequest(f"$share/g/{filter}".encode(), qos),)
        self._client.send(Subscribe(self._client.next_id(), requests))
        return self

    def unshare(self, filter: str = "t/#") -> None:
        assert self._client is not None
        self._client.send(Unsubscribe(self._client.next_id(), (f"$share/g/{filter}".encode(),)))

    def leave(self) -> None:
        """Disconnects in order."""
        assert self._client is not None
        self._client.leave()
        self._end()

    def drop(self) -> None:
        """Loses the connection, once all that was sent has been written to it."""
        assert self._client is not None
        assert self._face is not None
        self._face.end_turn()
        self._client.drop()
        self._end()

    def killed(self) -> None:
        """Its host was killed: what was written to it before counts as received."""
        self._read(answer=False)
        self._client = None

    def _end(self) -> None:
        self._read(answer=False)
        self._client = None

    def collect(self) -> None:
        """Reads what has come, and acknowledges it."""
        if self._client is not None:
            self._read(answer=self.acknowledges)

    def _read(self, *, answer: bool) -> None:
        client = self._client
        assert client is not None
        packets = client.got() if answer else _decoded(client)
        for packet in packets:
            if isinstance(packet, Publish):
                self._take(client, packet, answer)
            elif isinstance(packet, Ack) and packet.kind == codec.PUBREL and answer:
                self._open.discard(packet.packet_id)
                client.ack(codec.PUBCOMP, packet.packet_id)

    def _take(self, client: Client, packet: Publish, answer: bool) -> None:
        if packet.qos < 2 or packet.packet_id not in self._open:
            self.got.append(packet.payload)
        if packet.qos == 2:
            self._open.add(packet.packet_id)
        if packet.qos and answer:
            client.ack(codec.PUBACK if packet.qos == 1 else codec.PUBREC, packet.packet_id)


def _decoded(client: Client) -> list[object]:
    """Returns what was written to the client so far, without ending a turn."""
    from tests.unit.mqtt.face import packets_of

    data, client.written = client.written, b""
    return list(packets_of(data, client.version))
