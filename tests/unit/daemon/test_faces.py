"""A further face: one row in the list, its own module, and a field of the settings. Nothing else knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from treecast.middleware.daemon.daemon import Daemon
from treecast.middleware.daemon.faces import FACES, FaceKind, listeners
from treecast.middleware.daemon.faces.context import FaceContext
from treecast.middleware.daemon.settings import Settings
from treecast.middleware.daemon.status import take_status
from treecast.middleware.model.topics import TopicName
from treecast.shims.face import Face, OpenListener

OFF = {"kafka": "off", "amqp": "off", "mqtt": "off", "stare": "off", "admin": "off"}


class EchoSettings(Settings, frozen=True, kw_only=True):
    echo: str = "off"


class EchoFace(Face):
    """Answers each line, and publishes it to the MQTT topic `echo`."""

    def __init__(self, context: FaceContext) -> None:
        self.steps = ["made"]
        self._hub = context.broker.pubsub.hub
        self._server: asyncio.Server

    async def open(self) -> Sequence[OpenListener]:
        self.steps.append("opened")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return [OpenListener("echo", f"127.0.0.1:{port}", None)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hub.routes.look_up(TopicName.from_mqtt("echo").to_mqtt().encode())
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def close(self, grace: float) -> None:
        self.steps.append("closed")
        self._server.close()


async def test_a_fifth_face_is_one_row(tmp_path: Path) -> None:
    made: list[EchoFace] = []

    def make(context: FaceContext) -> Face:
        made.append(EchoFace(context))
        return made[0]

    kinds = (*FACES, FaceKind(("echo",), make))
    settings = EchoSettings(
        name="h", data=str(tmp_path / "d"), runtime_dir=str(tmp_path / "r"), echo="127.0.0.1:0", **OFF
    )
    daemon = Daemon(settings, {}, kinds)
    await daemon.start()
    try:
        assert "echo=127.0.0.1:" in daemon.now_serving()
        assert daemon.subject is not None
        assert [face.name for face in (await take_status(daemon.subject, 0.0)).faces] == ["echo", "control"]
        host, port = daemon.listeners["echo"].address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
    finally:
        await daemon.close(1.0)
    assert made[0].steps == ["made", "opened", "closed"]


async def test_a_face_that_is_off_is_not_made(tmp_path: Path) -> None:
    def make(_: FaceContext) -> Face:
        raise AssertionError("it is off")

    settings = EchoSettings(name="h", data=str(tmp_path / "d"), runtime_dir=str(tmp_path / "r"), **OFF)
    daemon = Daemon(settings, {}, (FaceKind(("echo",), make),))
    await daemon.start()
    assert list(daemon.listeners) == ["control"]
    await daemon.close(1.0)


def test_every_listener_has_its_settings() -> None:
    for name in listeners():
        assert isinstance(getattr(Settings(), name), str)
        if name.endswith("_tls"):
            for file in ("certificate", "key", "authority"):
                assert getattr(Settings(), f"{name}_{file}") == ""


async def test_faces_that_keep_what_others_publish_close_last(tmp_path: Path) -> None:
    closed: list[str] = []

    class Closing(Face):
        def __init__(self, name: str, keeps: bool) -> None:
            self.name, self.keeps = name, keeps

        async def open(self) -> Sequence[OpenListener]:
            return [OpenListener(self.name, "127.0.0.1:1", None)]

        async def close(self, grace: float) -> None:
            closed.append(self.name)

    kinds = (
        FaceKind(("echo", "kafka"), lambda _: Closing("first", True)),
        FaceKind(("kafka", "echo"), lambda _: Closing("second", False)),
    )
    settings = EchoSettings(
        name="h", data=str(tmp_path / "d"), runtime_dir=str(tmp_path / "r"), **OFF | {"echo": "127.0.0.1:0"}
    )
    daemon = Daemon(settings, {}, kinds)
    await daemon.start()
    await daemon.close(1.0)
    assert closed == ["second", "first"]


def test_amqp_keeps() -> None:
    pytest.importorskip("treecast.middleware.daemon.faces.amqp")
    from treecast.middleware.daemon.faces.amqp import AmqpPart

    assert AmqpPart.keeps
