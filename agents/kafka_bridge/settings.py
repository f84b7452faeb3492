"""The settings of the agent that joins Kafka clusters: the table [kafka-bridge] of its TOML file."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from treecast.agents.common.settings import SettingsError, SiteSettings
from treecast.agents.kafka.cluster import KafkaCluster
from treecast.agents.kafka.settings import ClusterSettings, Names

TABLE: Final = "kafka-bridge"
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]+")
# as MirrorMaker 2's `groups.exclude`
_NO_GROUPS: Final = ("console-consumer-*", "connect-*", "__*", "treecast-bridge.*")


class WaySettings(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    rename={"source": "from", "target": "to"},
):
    """One of the tables [[kafka-bridge.ways]]. Names with `*` and `?` as in file names.

    `from`, `to`: clusters. `topics`: those that are carried; `not_topics`: and not these. `names`: a topic is
    FROM.TOPIC at the other cluster (`prefix`), or has the same name there. `begin`: with which record of a
    topic that was never carried. `groups`: those whose offsets are translated; `sync_groups`: and committed
    at the other cluster while the group has no member there.
    """

    source: str
    target: str
    topics: Names
    not_topics: Names = ()
    names: Literal["prefix", "same"] = "prefix"
    begin: Literal["earliest", "latest"] = "earliest"
    groups: Names = ("*",)
    not_groups: Names = _NO_GROUPS
    sync_groups: bool = False

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"


class BridgeSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [kafka-bridge].

    `clusters`: by alias. `offset_syncs`: the cluster with MirrorMaker's topic of offsets. `groups_seconds`,
    `heartbeat_seconds`: how often offsets of groups are translated, and heartbeats written. `replicas`: of
    topics that are made, -1: the cluster's default.
    """

    clusters: dict[str, ClusterSettings]
    ways: tuple[WaySettings, ...]
    offset_syncs: Literal["source", "target"] = "source"
    groups_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    heartbeat_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    replicas: Annotated[int, Meta(ge=-1, le=32767)] = -1

    def check(self) -> None:
        """Raises SettingsError."""
        if not self.ways:
            raise SettingsError(f"{TABLE}.ways: name one at least, as in [[{TABLE}.ways]]")
        for alias, cluster in self.clusters.items():
            if not _ALIAS.fullmatch(alias):
                raise SettingsError(
                    f"{TABLE}.clusters.{alias}: an alias has letters, digits, `_` and `-` only: it begins"
                    " names of topics"
                )
            table = f"{TABLE}.clusters.{alias}"
            _ = (cluster.brokers_of(table), cluster.log_in_of(table), cluster.context_for(table))
        for way in self.ways:
            self._check_way(way)
        if len({way.name for way in self.ways}) < len(self.ways):
            raise SettingsError(f"{TABLE}.ways: each pair of `from` and `to` may be named once")

    def _check_way(self, way: WaySettings) -> None:
        for alias in (way.source, way.target):
            if alias not in self.clusters:
                raise SettingsError(f"{TABLE}.ways: add a table [{TABLE}.clusters.{alias}], or correct it")
        if way.source == way.target:
            raise SettingsError(f"{TABLE}.ways: `from` and `to` are both {way.source}")
        if not way.topics:
            raise SettingsError(f'{TABLE}.ways: name topics of {way.name}, as in topics = ["orders.*"]')
        back = self.back(way)
        if back is not None and back.names != way.names:
            raise SettingsError(f"{TABLE}.ways: `names` has to be the same for {way.name} and {back.name}")

    def back(self, way: WaySettings) -> WaySettings | None:
        """Returns the way in the other direction, if there is one."""
        found = [one for one in self.ways if (one.source, one.target) == (way.target, way.source)]
        return found[0] if found else None


class BridgeAgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    agent: SiteSettings
    bridge: BridgeSettings = field(name=TABLE)

    def check(self) -> None:
        """Raises SettingsError for what cannot be right."""
        self.bridge.check()
        _ = self.agent.admin_address


def cluster_of(settings: BridgeSettings, alias: str, client_id: str) -> KafkaCluster:
    """Returns a cluster that is not asked yet. Raises SettingsError."""
    one, table = settings.clusters[alias], f"{TABLE}.clusters.{alias}"
    return KafkaCluster(one.brokers_of(table), one.context_for(table), one.log_in_of(table), client_id)
