"""The checks of `treecast agent doctor` at the clusters that are joined: log-in, versions, topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treecast.agents.kafka.check import check_brokers
from treecast.agents.kafka.cluster import Found as ClusterFound
from treecast.agents.kafka.connection import ConnectionLost

from .naming import Naming
from .settings import BridgeSettings, cluster_of

Found = tuple[str, str, str]  # what was checked; ok, slow or bad; the detail


def check_clusters(settings: BridgeSettings) -> Iterator[Found]:
    """Yields what was found at the clusters."""
    yield from asyncio.run(_check(settings))


async def _check(settings: BridgeSettings) -> list[Found]:
    rows: list[Found] = []
    known: dict[str, ClusterFound] = {}
    for alias in settings.clusters:
        cluster = cluster_of(settings, alias, "treecast-agent-doctor")
        try:
            known[alias] = await cluster.refresh()
            rows += [
                (f"{alias} {what}", level, detail) for what, level, detail in await check_brokers(cluster)
            ]
        except ConnectionLost as error:
            rows.append((f"{alias} cluster", "bad", str(error)))
        finally:
            cluster.close()
    return [*rows, *_ways(settings, known)]


def _ways(settings: BridgeSettings, known: dict[str, ClusterFound]) -> Iterator[Found]:
    for way in settings.ways:
        found = known.get(way.source)
        if found is None:
            continue
        naming = Naming(way.source, way.target, way.names == "prefix", way.topics, way.not_topics)
        carried = [one for one in found.topics if naming.at_target(one) is not None]
        if carried:
            yield way.name, "ok", f"{len(carried)} topics are carried"
        else:
            yield way.name, "slow", "no topic has a name that `topics` matches; new ones are carried at once"
