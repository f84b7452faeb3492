"""`Telling`: what one way writes for MirrorMaker 2's tools and users' scripts, see `mirror`.

What fails here is said in the status, and does not hold the records up.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

from treecast.agents.kafka.asking import KafkaOwner
from treecast.agents.kafka.cluster import KafkaCluster
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition

from .checkpoints import Checkpoints, Translates
from .mirror import checkpoint, checkpoints_topic, heartbeat, offset_sync, offset_syncs_topic
from .naming import HEARTBEATS
from .notebook import Notebook
from .settings import BridgeSettings, WaySettings

_SYNCS_EVERY: Final = 1.0
_TURN: Final = 0.2


class Notes(Protocol):
    def note(self, what: str, detail: str) -> None: ...

    def settled(self, what: str) -> None: ...


class Telling:
    """In use from `run` to its cancellation."""

    def __init__(
        self,
        settings: BridgeSettings,
        way: WaySettings,
        source: KafkaCluster,
        target: KafkaCluster,
        translates: Translates,
    ) -> None:
        self.checkpoints = Checkpoints(way, source, target, translates)
        self._way = way
        self._settings = settings
        self._moved: dict[TopicPartition, tuple[int, int]] = {}
        owners = {way.source: KafkaOwner(source, lambda: None), way.target: KafkaOwner(target, lambda: None)}
        clusters = {way.source: source, way.target: target}

        def notebook(alias: str, topic: str) -> Notebook:
            return Notebook(clusters[alias], owners[alias], topic, settings.replicas)

        here = way.source if settings.offset_syncs == "source" else way.target
        other = way.target if settings.offset_syncs == "source" else way.source
        self._syncs = notebook(here, offset_syncs_topic(other))
        self._points = notebook(way.target, checkpoints_topic(way.source))
        self._beats = [(notebook(way.target, HEARTBEATS), way.source, way.target)]
        if settings.back(way) is None:  # MirrorMaker writes them at the source as well: they are carried
            self._beats.append((notebook(way.source, HEARTBEATS), way.target, way.source))

    def moved(self, name: TopicPartition, upstream: int, downstream: int) -> None:
        """A record of the source is at this offset of the target."""
        self._moved[name] = upstream, downstream

    async def run(self, notes: Notes) -> None:
        clock = asyncio.get_running_loop().time
        work = [
            (_SYNCS_EVERY, self._sync),
            (self._settings.groups_seconds, self._check_groups),
            (self._settings.heartbeat_seconds, self._beat),
        ]
        due = [clock() for _ in work]
        while True:
            for number, (every, call) in enumerate(work):
                if clock() < due[number]:
                    continue
                due[number] = clock() + every
                what = f"{self._way.name} {call.__name__.strip('_')}"
                try:
                    await call()
                    notes.settled(what)
                except TreecastError as error:
                    notes.note(what, error.detail)
            await asyncio.sleep(min(_TURN, max(min(due) - clock(), 0.01)))

    async def _sync(self) -> None:
        moved, self._moved = self._moved, {}
        if not moved:
            return
        now = int(time.time() * 1000)
        try:
            await self._syncs.write(
                [offset_sync(name.topic, name.partition, *places, now) for name, places in moved.items()]
            )
        except TreecastError:
            self._moved = moved | self._moved
            raise

    async def _check_groups(self) -> None:
        changed = await self.checkpoints.look()
        if changed:
            now = int(time.time() * 1000)
            await self._points.write([checkpoint(one, now) for one in changed])
            self.checkpoints.said(changed)

    async def _beat(self) -> None:
        now = int(time.time() * 1000)
        for notebook, source, target in self._beats:
            await notebook.write([heartbeat(source, target, now)])
