"""Hosts' MQTT faces in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.mqtt.face import MemoryHost


@pytest.fixture
def host() -> MemoryHost:
    return MemoryHost()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[MemoryHost]:
    """A host with a journal."""
    found = MemoryHost(data=tmp_path / "pubsub")
    yield found
    if found.hub.journal is not None:
        found.hub.journal.close()


@pytest.fixture
def make_host(tmp_path: Path) -> Callable[..., MemoryHost]:
    return MemoryHost
