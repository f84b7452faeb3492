"""Hosts that are closed after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.unit.fabric.channel.hosts import LOOPBACK, Host

from treecast.middleware.api.discovery import Address

StartHost = Callable[..., Awaitable[Host]]


@pytest.fixture
async def start_host() -> AsyncIterator[StartHost]:
    """`await start_host(host_id, handler, address=..., incarnation=...)`: a host that listens."""
    hosts: list[Host] = []

    async def start(*args: Any, address: Address = LOOPBACK, **options: Any) -> Host:
        host = Host(*args, **options)
        hosts.append(host)
        return await host.start(address)

    yield start
    for host in hosts:
        await host.channels.close()
