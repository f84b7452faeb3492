"""The drop-in clients: their additions to kafka-python's, and the modules that importing the face loads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import kafka
import pytest

import treecast.shims.kafka as face
from treecast.middleware.api.discovery import Address, Endpoint
from treecast.shims.kafka import client

NAMES = ["KafkaAdminClient", "KafkaConsumer", "KafkaProducer"]


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Returns the arguments of kafka-python's constructors; nothing is started."""
    calls: list[tuple[Any, Any]] = []
    for name in NAMES:
        cls = getattr(kafka, name)
        monkeypatch.setattr(cls, "__init__", lambda self, *args, **configs: calls.append((args, configs)))
        monkeypatch.setattr(cls, "__del__", lambda self: None, raising=False)
    monkeypatch.setattr(
        client, "find_face", lambda name: Endpoint(Address("::1", 1234), None, f"test {name}")
    )
    return calls


@pytest.mark.parametrize("name", NAMES)
def test_they_are_kafka_pythons(name: str) -> None:
    assert issubclass(getattr(face, name), getattr(kafka, name))


@pytest.mark.parametrize("name", NAMES)
def test_they_find_the_daemon_of_the_host(name: str, calls: list[Any]) -> None:
    getattr(face, name)(client_id="me")
    assert calls == [((), {"client_id": "me", "bootstrap_servers": "[::1]:1234"})]


@pytest.mark.parametrize("name", NAMES)
def test_given_servers_win(name: str, calls: list[Any]) -> None:
    getattr(face, name)(bootstrap_servers=["a:1", "b:2"])
    assert calls == [((), {"bootstrap_servers": ["a:1", "b:2"]})]


def test_a_consumer_takes_topics(calls: list[Any]) -> None:
    face.KafkaConsumer("a", "b")
    assert calls[0][0] == ("a", "b")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KafkaStreams'"):
        _ = face.KafkaStreams


@pytest.mark.parametrize(
    ("name", "absent"),
    [("KafkaFace", "kafka"), ("KafkaSettings", "kafka"), ("KafkaProducer", "treecast.shims.kafka.server")],
)
def test_neither_side_loads_the_other(name: str, absent: str) -> None:
    code = f"import sys; from treecast.shims.kafka import {name}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
