"""Hosts' AMQP faces in memory."""

from __future__ import annotations

import pytest
from tests.unit.amqp.face import Client, MemoryHost


@pytest.fixture
def host() -> MemoryHost:
    return MemoryHost()


@pytest.fixture
def client(host: MemoryHost) -> Client:
    return host.client()
