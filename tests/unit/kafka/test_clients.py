"""The drop-in clients: what they add to kafka-python's, and what importing the face loads."""

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


class Started(Exception):
    """Carries what kafka-python's constructor was called with."""


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(self: Any, *args: Any, **configs: Any) -> None:
        raise Started(args, configs)

    for name in NAMES:
        monkeypatch.setattr(getattr(kafka, name), "__init__", record)
    monkeypatch.setattr(
        client, "find_face", lambda name: Endpoint(Address("::1", 1234), None, f"test {name}")
    )


def started_with(name: str, *args: Any, **configs: Any) -> tuple[Any, Any]:
    with pytest.raises(Started) as caught:
        getattr(face, name)(*args, **configs)
    return caught.value.args[0], caught.value.args[1]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_kafka_pythons(name: str) -> None:
    assert issubclass(getattr(face, name), getattr(kafka, name))


@pytest.mark.parametrize("name", NAMES)
def test_they_find_the_daemon_of_the_host(name: str) -> None:
    _, configs = started_with(name, client_id="me")
    assert configs == {"client_id": "me", "bootstrap_servers": "[::1]:1234"}


@pytest.mark.parametrize("name", NAMES)
def test_given_servers_win(name: str) -> None:
    _, configs = started_with(name, bootstrap_servers=["a:1", "b:2"])
    assert configs == {"bootstrap_servers": ["a:1", "b:2"]}


def test_a_consumer_takes_topics() -> None:
    assert started_with("KafkaConsumer", "a", "b")[0] == ("a", "b")


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
