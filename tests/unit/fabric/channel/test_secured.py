"""Channels of secured hosts: TLS handshakes that nobody finishes, and certificates that are refused."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.secured import SecuredCluster
from tests.unit.fabric.channel.hosts import Host, until

from treecast.middleware.api.trust import Trust
from treecast.middleware.fabric.channel import ChannelSettings
from treecast.middleware.fabric.channel.codec import Problem
from treecast.middleware.fabric.channel.tls import ChannelTls

SETTINGS = ChannelSettings(handshakes=16, handshake=30.0, tick=0.05, back_off_longest=0.2)


class Site:
    """Hosts of one secured cluster."""

    def __init__(self, folder: Path) -> None:
        self.cluster = SecuredCluster(folder)
        self.hosts: list[Host] = []
        self.trusts: list[Trust] = []

    async def start(self, name: str) -> Host:
        trust = self.cluster.host(name)
        made = Host(len(self.hosts) + 1, settings=SETTINGS, key=None)

        def vouch(host_id: int, tls: object) -> str:
            identity = trust.holder(tls)
            return "" if identity is not None and trust.accepts(identity) else "it is not accepted"

        made.channels.tls = ChannelTls(trust.server, trust.client, vouch)
        self.hosts.append(made)
        self.trusts.append(trust)
        return await made.start()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    yield made
    for host in made.hosts:
        await host.channels.close()


async def test_unfinished_handshakes_are_bounded(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    a = await site.start("a")
    loop = asyncio.get_running_loop()
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        strangers = [socket.socket() for _ in range(200)]
        for one in strangers:
            one.setblocking(False)
            await loop.sock_connect(one, (a.address.host, a.address.port))
        b = await site.start("b")
        b.knows(a)
        await until(lambda: b.channels.is_up(1) and a.channels.is_up(2))
        assert a.counters.problems[Problem.HANDSHAKE.name] >= 200 - SETTINGS.handshakes
        assert len(a.channels._links) <= SETTINGS.handshakes + 1
        for one in strangers:
            one.close()
        await until(lambda: len(a.channels._links) == 1)


async def test_a_renewed_certificate_is_used_by_both_ends(site: Site) -> None:
    a, b = await site.start("a"), await site.start("b")
    renewed = []
    for name, trust in zip("ab", site.trusts, strict=True):
        site.cluster.certify(name)
        assert trust.look()
        renewed.append(trust.identity.serial)
    b.knows(a)
    await until(lambda: b.channels.is_up(1) and a.channels.is_up(2))
    seen = [site.trusts[0].holder(link.tls) for link in a.channels._links]
    shown = [site.trusts[1].holder(link.tls) for link in b.channels._links]
    assert [one.serial for one in (*shown, *seen) if one is not None] == renewed
