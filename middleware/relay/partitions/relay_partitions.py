"""`RelayPartitions`: access of one host to every partition of the cluster."""

from __future__ import annotations

import itertools

from treecast.middleware.api.entries import HostEntry, TopicEntry
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.fabric.channel import Channels, Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.runs import DirectoryState
from treecast.middleware.relay.view import ClusterView

from .accounts import Accounts
from .copies import Copier, Survey
from .ends import Ends
from .leading import Leading, Led
from .operator import Operator
from .ports import PartitionSettings, Record, Topics
from .rebuilding import Rebuilding
from .replicas import Replicas
from .serving import Serving


class RelayPartitions(Replicas):
    """Implements `relay.cluster.Partitions` and `relay.cluster.Life`: replicas and led partitions.

    Led partitions must be open before it starts.
    """

    leading: Leading

    def __init__(
        self,
        parts: LocalParts,
        topics: Topics,
        view: ClusterView,
        channels: Channels,
        methods: Methods,
        fabric: Fabric,
        settings: PartitionSettings,
        counters: RelayCounters,
        record: Record,
        directory: DirectoryState,
    ) -> None:
        """`directory`: the id of this host's data directory. `record`: the coordinator's record of logs."""
        super().__init__(parts, topics, view, channels, methods, fabric, settings, counters, directory)
        led = Led(parts.partitions, topics)
        self.accounts = Accounts(parts.tables, settings.accounts_every)
        self.leading = Leading(parts.run, led, fabric, methods, itertools.count(1), self.accounts, directory)
        self.serving = Serving(led, methods)
        host_id, partitions = parts.host.host_id, parts.partitions
        survey = Survey(host_id, self.copies, view, methods, channels.is_up, record, settings)
        copier = Copier(partitions, self.following, methods, settings, counters, parts.clock)
        self.rebuilding = Rebuilding(
            host_id,
            parts.run,
            partitions,
            topics,
            parts.tables,
            view,
            survey,
            copier,
            record,
            settings,
            counters,
            parts.clock,
        )
        self.operator = Operator(
            host_id,
            partitions,
            topics,
            view,
            self.following,
            self.rebuilding,
            survey,
            methods,
            channels.is_up,
            record,
            parts.clock,
        )
        self.ends = Ends(partitions, topics, record, self._history, settings.ends_every)

    # --- life

    async def start(self) -> None:
        self.leading.start()
        await super().start()
        self.rebuilding.start()
        self.ends.start()

    async def close(self) -> None:
        await self.ends.close()
        await self.rebuilding.close()
        await super().close()
        await self.accounts.write()
        self.leading.close()

    def _history(self) -> str:
        """Returns the coordinator's known history."""
        return self._view.position.history

    # --- notifications

    def host_up(self, host: int, incarnation: int) -> None:
        super().host_up(host, incarnation)
        self.rebuilding.look_again()

    def _topic_changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        super()._topic_changed(before, after)
        self.rebuilding.topic_changed(before, after)

    def _host_changed(self, before: HostEntry | None, after: HostEntry | None) -> None:
        if after is None and before is not None:
            self.leading.host_left(before.host_id)
