"""`BridgeAgent`: the agent that joins Kafka clusters, from `start` to `close`.

    source --fetches--> Source --Sieve--> Writer --transactions--> target
                                            |
                                            +--offsets, groups, heartbeats--> MirrorMaker 2's topics

Each way holds its place at its target, in the transaction that carries the records. The data directory holds
only what makes translated offsets exact.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from treecast.agents.common.life import SiteLife, StartRefused
from treecast.agents.common.status import AgentCounters

from .lease import HeldElsewhere
from .memory import Memory, WayMemory
from .settings import BridgeAgentSettings, cluster_of
from .status import BridgeStatus
from .way import Way

_FIRST_SECONDS: Final = 60.0  # how long the clusters are waited for at the start
_REMEMBER_EVERY: Final = 10.0


class BridgeAgent:
    """One agent. All is called on one event loop."""

    def __init__(self, settings: BridgeAgentSettings) -> None:
        """Raises SettingsError."""
        settings.check()
        self._settings = settings
        self.life = SiteLife(settings.agent, self)
        client_id = f"treecast-agent-{settings.agent.name}"
        bridge = settings.bridge
        self.clusters = {alias: cluster_of(bridge, alias, client_id) for alias in bridge.clusters}
        known = self.life.recall(Memory).ways
        self.ways = {
            way.name: Way(
                bridge,
                way,
                self.clusters[way.source],
                self.clusters[way.target],
                known.get(way.name, WayMemory()),
                self,
                client_id,
            )
            for way in bridge.ways
        }
        for one in self.ways.values():
            back = bridge.back(one.way)
            one.back = None if back is None else self.ways[back.name]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def admin_address(self) -> str:
        return self.life.admin_address

    @property
    def counters(self) -> AgentCounters:
        return self.life.counters

    # --- life

    async def start(self) -> None:
        """Begins to carry. Raises StartRefused, TreecastError or OSError.

        The caller must call `close` even after a failure.
        """
        self._make_directory()
        await self.life.start()
        self._tasks = [asyncio.create_task(way.run(), name=way.name) for way in self.ways.values()]
        begun = [way.begun for way in self.ways.values()]
        done, waiting = await asyncio.wait(begun, timeout=_FIRST_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for one in done:
            if isinstance(error := one.exception(), HeldElsewhere):
                raise StartRefused(str(error))
        if waiting:
            said = "; ".join(one.detail for one in self.life.troubles.values())
            raise StartRefused(f"the clusters cannot be joined ({said}): check kafka-bridge.clusters")
        self._tasks.append(asyncio.create_task(self._remember_often(), name="memory"))

    def _make_directory(self) -> None:
        Path(self._settings.agent.data).mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        """Stops in order. Safe to call twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for way in self.ways.values():
            way.begun.cancel()
            await way.close()
        for cluster in self.clusters.values():
            cluster.close()
        if tasks:
            self.remember()
        await self.life.close()

    def remember(self) -> None:
        self.life.remember(Memory({name: way.memory for name, way in self.ways.items()}))

    async def _remember_often(self) -> None:
        while True:
            await asyncio.sleep(_REMEMBER_EVERY)
            self.remember()

    # --- troubles and status

    def note(self, what: str, detail: str) -> None:
        self.life.note(what, detail)

    def settled(self, what: str) -> None:
        self.life.settled(what)

    def status(self) -> BridgeStatus:
        ways = list(self.ways.values())
        found = {alias: one.found for alias, one in self.clusters.items()}
        described = [
            f"{alias}: Kafka {one.cluster_id}, {len(one.brokers)} brokers"
            for alias, one in found.items()
            if one.cluster_id
        ]
        statuses = {way.name: way.status() for way in ways}
        troubles = list(self.life.troubles.values())
        return BridgeStatus(
            kind="kafka-bridge",
            site=self._settings.agent.name,
            host_id=0,
            cluster_id="",
            broker="; ".join(described),
            connected=len(described) == len(found),
            serving=all(one.serving for one in statuses.values()),
            interest="",
            lag=sum(one.lag for one in statuses.values()),
            owed=0,
            spool_bytes=0,
            exchanges={},
            sites={},
            counters=self.counters,
            troubles=troubles,
            ways=statuses,
            fetched_bytes=sum(way.source.fetchers.received for way in ways),
            cuts=sum(way.source.cuts for way in ways),
            missed=sum(way.source.missed for way in ways),
        )
