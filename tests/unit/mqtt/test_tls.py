"""TLS of the face over real sockets: a failed handshake is reported to the client and in the log."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.unit.mqtt.face import packets_of

from treecast.middleware.broker import Turn
from treecast.middleware.broker.pubsub import PubSub, PubSubSettings
from treecast.middleware.broker.pubsub_host import LoopEdge
from treecast.middleware.model.counters import FaceCounters, PubSubCounters
from treecast.middleware.model.visitors import Limits
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.shims import tls
from treecast.shims.listening import TlsSettings
from treecast.shims.mqtt.codec import V5
from treecast.shims.mqtt.codec_packets import Connack, Connect, FilterRequest, Publish, Subscribe, encode
from treecast.shims.mqtt.server import MqttFace
from treecast.shims.mqtt.settings import MqttSettings
from treecast.shims.tls import why_refused

PATIENCE_S = 30.0
HELLO = encode(Connect(V5, "c"), V5)


class Certificates:
    """An authority, the certificates that it signed for server and client, and an unsigned client's."""

    def __init__(self, folder: Path, openssl: str) -> None:
        self._folder, self._openssl = folder, openssl
        self.authority = self._make("authority", "-x509")
        for name in ("server", "client"):
            self._make(name, "-x509", "-CA", str(self.authority), "-CAkey", str(folder / "authority.key"))
        self.server, self.client = folder / "server.pem", folder / "client.pem"
        self.stranger = self._make("stranger", "-x509")

    def _make(self, name: str, *more: str) -> Path:
        made = self._folder / f"{name}.pem"
        subprocess.run(
            [
                *(
                    self._openssl,
                    "req",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:prime256v1",
                    "-nodes",
                ),
                *("-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(self._folder / f"{name}.key"), "-out", str(made), *more),
            ],
            check=True,
            capture_output=True,
        )
        return made

    def settings(self, *, asks: bool) -> TlsSettings:
        return TlsSettings(self.server, self.server.with_suffix(".key"), self.authority if asks else None)

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Makes a client's context."""
        made = ssl.create_default_context(cafile=str(self.authority))
        if certificate is not None:
            made.load_cert_chain(certificate, certificate.with_suffix(".key"))
        return made


@pytest.fixture(scope="module")
def certificates(
    tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]
) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), require_tool("openssl"))


@pytest.fixture
async def face(certificates: Certificates, request: pytest.FixtureRequest) -> AsyncIterator[MqttFace]:
    """A face over TLS only. Parameters: further settings; `asks`: whether clients need a certificate."""
    given = {"asks": True, **getattr(request, "param", {})}
    tls = certificates.settings(asks=given.pop("asks"))
    settings = MqttSettings(plain=False, tls=tls, tls_port=0, **given)
    turn = Turn(FsyncPolicy.NEVER, LoopEdge(asyncio.get_running_loop()))
    made = MqttFace(PubSub(PubSubSettings(), PubSubCounters()), turn, settings, FaceCounters())
    await made.start()
    yield made
    await made.close(PATIENCE_S)


def connect(face: MqttFace, context: ssl.SSLContext | None) -> socket.socket:
    """Connects a blocking client, for use in its own thread."""
    assert face.tls_address is not None
    plain = socket.create_connection(face.tls_address, PATIENCE_S)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise


def read_packet(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        got = client.recv(size - len(found))
        assert got, found
        found += got
    return found


def ask(face: MqttFace, context: ssl.SSLContext) -> Connack:
    """Returns the answer to CONNECT, or raises the alert that comes instead."""
    with connect(face, context) as client:
        client.sendall(HELLO)
        head = read_packet(client, 2)
        found = packets_of(head + read_packet(client, head[1]), V5)[0]
    assert isinstance(found, Connack)
    return found


async def answer(face: MqttFace, context: ssl.SSLContext) -> Connack:
    return await asyncio.to_thread(ask, face, context)


def last_words(face: MqttFace, data: bytes = b"") -> None:
    """Sends bytes that are not TLS, and waits for the end."""
    with connect(face, None) as client:
        client.sendall(data)
        while client.recv(4096):
            pass


async def test_a_signed_client_is_served_over_tls_alone(face: MqttFace, certificates: Certificates) -> None:
    assert (await answer(face, certificates.context(certificates.client))).reason == 0
    assert face.tls_address is not None
    assert len(face.listeners._servers) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("who", ["stranger", "nobody"])
async def test_a_refused_client_is_told_why_and_so_is_the_log(
    face: MqttFace,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    version: ssl.TLSVersion,
    who: str,
) -> None:
    context = certificates.context(certificates.stranger if who == "stranger" else None)
    context.maximum_version = version
    with caplog.at_level(logging.WARNING), pytest.raises(ssl.SSLError) as alert:
        await answer(face, context)
    assert "ALERT" in str(alert.value.reason)
    said = {
        "stranger": "the client's certificate was refused: self-signed certificate",
        "nobody": "the client gave no certificate, and this listener asks for one",
    }
    assert f"reason={said[who]}" in caplog.text
    assert face.counters.protocol_errors == {said[who]: 1}
    assert face.counters.connections_opened == 0


async def test_a_client_that_refuses_the_server_is_told_of(
    face: MqttFace, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        with pytest.raises(ssl.SSLError):
            await answer(face, ssl.create_default_context())
        async with asyncio.timeout(PATIENCE_S):
            while not caplog.text:  # noqa: ASYNC110  (the alert travels)
                await asyncio.sleep(0.01)
    assert "the client ended the TLS handshake: tlsv1 alert unknown ca" in caplog.text


@pytest.mark.parametrize(
    ("data", "said"),
    [(HELLO, "the client does not speak TLS"), (b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS but HTTP")],
)
async def test_who_speaks_no_tls_is_named(
    face: MqttFace, caplog: pytest.LogCaptureFixture, data: bytes, said: str
) -> None:
    with caplog.at_level(logging.WARNING):
        await asyncio.to_thread(last_words, face, data)
    assert said in caplog.text


async def test_a_failed_handshake_counts_until_its_socket_is_closed(
    face: MqttFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stranger would hold as many descriptors as it begins handshakes in that time."""
    monkeypatch.setattr(tls, "_LINGER", 3600.0)
    visitors = face.listeners.visitors
    with await asyncio.to_thread(connect, face, None) as client:
        client.sendall(HELLO)
        assert not await asyncio.to_thread(client.recv, 4096), "the end of what it is told"
        assert (len(visitors), visitors.new) == (1, 1)
    async with asyncio.timeout(PATIENCE_S):
        while len(visitors):  # noqa: ASYNC110  (the end travels)
            await asyncio.sleep(0.01)


async def test_a_failed_handshake_gives_way(face: MqttFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_LINGER", 3600.0)
    visitors = face.listeners.visitors
    visitors.limits = Limits(new=1)
    with await asyncio.to_thread(connect, face, None) as client:
        client.sendall(HELLO)
        assert not await asyncio.to_thread(client.recv, 4096), "the end of what it is told"
        with await asyncio.to_thread(connect, face, None):
            async with asyncio.timeout(PATIENCE_S):
                while not face.listeners._handshakes:  # noqa: ASYNC110  (the connection travels)
                    await asyncio.sleep(0.01)
            assert (len(visitors), visitors.new) == (1, 1)


@pytest.mark.parametrize("face", [{"connect_seconds": 0.05}], indirect=True)
async def test_a_handshake_without_end_is_ended(face: MqttFace, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await asyncio.to_thread(last_words, face)
    assert "no TLS handshake in 0.05 s" in caplog.text


@pytest.mark.parametrize("face", [{"asks": False}], indirect=True)
async def test_large_messages_come_back_whole(face: MqttFace, certificates: Certificates) -> None:
    """The messages exceed a socket's buffer, so that writing is paused and resumed."""
    payload = bytes(range(256)) * 16_384
    sent = encode(Publish(b"t", payload), V5)

    def exchange() -> list[bytes]:
        with connect(face, certificates.context()) as client:
            for packet in (HELLO, encode(Subscribe(1, (FilterRequest(b"t"),)), V5)):
                client.sendall(packet)
                read_packet(client, read_packet(client, 2)[1])
            client.sendall(sent)
            client.sendall(sent)
            return [read_packet(client, len(sent)) for _ in range(2)]

    assert await asyncio.to_thread(exchange) == [sent, sent]


async def test_the_end_does_not_wait_for_handshakes(face: MqttFace) -> None:
    with await asyncio.to_thread(connect, face, None) as client:
        async with asyncio.timeout(PATIENCE_S):
            while not face.listeners._handshakes:  # noqa: ASYNC110  (the connection travels)
                await asyncio.sleep(0.01)
            await face.close(PATIENCE_S)
        assert await asyncio.to_thread(client.recv, 1) == b""


def test_other_failures_keep_openssls_words() -> None:
    error = ssl.SSLError(1, "[SSL: NO_SHARED_CIPHER] no shared cipher (_ssl.c:1)")
    error.reason = "NO_SHARED_CIPHER"
    assert why_refused(error) == "the TLS handshake failed: no shared cipher"
