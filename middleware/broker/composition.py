"""Assembles the parts of an open broker, and starts and closes them in order.

Start: groups, then topics and their logs, then transactions, which complete decided transactions. Messages
cross faces and hosts once the faces have restored their sessions (`Broker.begin_events`). Close: stop
crossing, answer all waiters, flush the logs, close the tables.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable

from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host
from treecast.middleware.model.logs import Log
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.storage.settings import LOOK_MS, LogSettings
from treecast.middleware.storage.summaries import LogSummaries
from treecast.middleware.storage.summary import summarise
from treecast.middleware.storage.tables import Change, Tables

from .cluster import Cluster
from .directory import DataDirectory, DataDirectoryError
from .groups import GroupCoordinator, GroupSettings, LoadedGroups
from .housekeeping import Chore, Housekeeping, Turns
from .local import LocalCluster
from .long_poll import LongPolls
from .partitions import LocalPartitions
from .parts import JoinCluster, LocalParts
from .pubsub_host import HostPubSub
from .queues.host import HostQueues
from .schemas import TopicSchemas
from .settings import BrokerSettings
from .topics import TopicRegistry
from .transactions import ProducerIds, TransactionCoordinator, TransactionSettings
from .transactions.repair import abort_hanging
from .views import WithViews

_log = Log(__name__)

_PARTITIONS, _LEAST_EPOCH = "partitions", "least_epoch"  # a table and its only key
_SUMMARIES_EVERY = 5.0  # seconds
_SWEEP_EVERY = 30.0  # seconds between removals of expired retained messages
_QUIET_MS = 10_000  # a log gets its summary after this time without a write


class Parts:
    """All parts of one broker on one open data directory. The constructor may raise DataDirectoryError."""

    def __init__(
        self,
        settings: BrokerSettings,
        host: Host,
        counters: Counters,
        directory: DataDirectory,
        clock: Callable[[], float],
        rng: random.Random,
        join: JoinCluster | None = None,
    ) -> None:
        """`join` makes the cluster of a joined host; None: the host is standalone."""
        self._counters = counters
        self._clock = clock
        self._directory = directory
        summaries = LogSummaries.open(str(directory.summaries), str(directory.logs))
        self._summaries = summaries
        self._shared = SharedFiles(summaries=summaries)
        self._log_settings = _log_settings(settings)
        self.flusher = Flusher()
        self.polls = LongPolls(asyncio.get_running_loop())
        self.tables = _open_tables(directory, settings)
        self.producer_ids = producer_ids = ProducerIds(self.tables)
        self.transactions = TransactionCoordinator(
            _transaction_settings(settings), self.tables, producer_ids, counters.broker, clock
        )
        loaded = LoadedGroups(_group_settings(settings), self.tables, counters.broker, clock=clock, rng=rng)
        self.groups = GroupCoordinator(loaded, self.transactions)
        self.partitions = self._made_partitions()
        self.pubsub = HostPubSub(settings.pubsub, str(directory.pubsub), settings.fsync, counters, clock)
        self.queues = HostQueues(
            settings.queues,
            str(directory.queues),
            self.pubsub.turn,
            self.pubsub.passes,
            counters.queue_levels,
        )
        self.groups.work = self.pubsub.work
        self.registry = TopicRegistry(settings, self.tables, self.partitions, rng, self.groups.forget_topic)
        local = LocalParts(
            settings,
            directory.meta.cluster_id,
            host,
            self.tables,
            self.partitions,
            self.groups,
            self.transactions,
            producer_ids,
            self.registry,
            counters,
            clock,
            rng,
            directory.run,
            self.polls,
            self.pubsub,
        )
        self._joined = join(local) if join is not None else None
        self.cluster: Cluster = self._joined or LocalCluster(local)
        self.groups.loaded.look_at(WithViews(self.cluster.definitions))
        self.schemas = TopicSchemas(self.cluster.definitions, counters.broker)
        self.pubsub.hub.schemas = self.schemas
        self.queues.hosts.use_schemas(self.schemas)
        self.housekeeping = Housekeeping(self._chores(settings))

    def _made_partitions(self) -> LocalPartitions:
        directory = self._directory
        return LocalPartitions(
            directory.logs,
            self._open_log,
            self.flusher,
            self.transactions,
            self._counters.broker,
            self._clock,
            None if directory.was_clean else directory.run,
            _least_epoch(self.tables, directory),
            directory.run,
        )

    async def start(self) -> None:
        await self.groups.loaded.start()
        self.transactions.restore()
        self.partitions.sweep()
        await (self.registry.load() if self._joined is None else self._joined.start())
        await self.transactions.start(self.cluster)
        if not self._directory.was_clean and self._joined is None:  # joined: homes may be elsewhere
            await abort_hanging(self.partitions.led(), self.transactions.transactions())

    async def close(self) -> None:
        """Closes all parts, even if some fail. The shutdown counts as clean only if none failed."""
        clean = True
        try:
            await self.pubsub.leave()  # first: what arrives still has its queues
            await self.queues.close()
            await self.pubsub.close()
            await self.leave()
            await asyncio.gather(self.transactions.close(), self.producer_ids.close())
            await self.groups.loaded.close()
            await asyncio.gather(self.flusher.close(), self.housekeeping.settle())
            await self.partitions.close()
            self._save_summaries()
        except TreecastError as error:
            clean = False
            _log.error("logs cannot be flushed", error=error)
        finally:
            self._close_files(clean=clean)

    async def leave(self) -> None:
        """Disconnects from the other hosts."""
        if self._joined is not None:
            await self._joined.close()

    def abandon(self) -> None:
        """Releases everything without flushing, after a failed start."""
        self.queues.abandon()
        self.pubsub.abandon()
        self.partitions.abandon()
        self._close_files(clean=False)

    def _save_summaries(self) -> None:
        if self._summaries is not None:
            self._summaries.save()

    def _close_files(self, *, clean: bool) -> None:
        if self._summaries is not None:
            self._summaries.close()
        self.tables.close()
        self._directory.close(clean=clean)

    def _open_log(
        self, path: str, config: TopicConfig, claim: Callable[[], None] | None = None
    ) -> PartitionLog:
        now_ms, counters = int(self._clock() * 1000), self._counters.storage
        return PartitionLog.open(path, config, self._log_settings, counters, now_ms, self._shared, claim)

    # --- chores

    def _chores(self, settings: BrokerSettings) -> list[Chore]:
        elsewhere = self._joined is not None  # then writes of homes may wait for other hosts
        return [
            Chore("retained messages", _SWEEP_EVERY, self.pubsub.sweep),
            Chore("force", settings.fsync_interval_ms / 1000, self._force),
            Chore("flush", min(settings.fsync_interval_ms, LOOK_MS) / 1000, self._flush),
            Chore(
                "transactions",
                settings.transaction_check_interval_ms / 1000,
                self._expire_transactions,
                slow=elsewhere,
            ),
            Chore("offsets", settings.expiry_check_interval_ms / 1000, self._expire_offsets, slow=elsewhere),
            Chore("summaries", _SUMMARIES_EVERY, self._summarise),
            Chore("retention", settings.retention_check_interval_ms / 1000, self._retain),
            Chore("compaction", settings.compaction_check_interval_ms / 1000, self._compact, slow=True),
        ]

    async def _force(self, now: float) -> None:
        """Begins to force what every store but the logs has written: the journal, the stores that take part
        in its turn, and the tables. All of it is done beside the loop."""
        self.pubsub.force()
        self.tables.force()

    async def _flush(self, now: float) -> None:
        """Begins to force the logs that are due. Topics may ask for it more often than the interval."""
        self.flusher.flush_due(self._shared.to_flush(), int(now * 1000))

    async def _expire_transactions(self, now: float) -> None:
        await self.transactions.expire()

    async def _expire_offsets(self, now: float) -> None:
        await self.groups.expire_offsets()

    async def _summarise(self, now: float) -> None:
        """Writes summaries of logs that have become idle, so that a start after a kill can trust those logs.
        A log whose summary would be large gets none; it is recovered from its checkpoint."""
        summaries = self._summaries
        if summaries is None:
            return
        changed, now_ms = self._shared.changed, int(now * 1000)
        turns = Turns()
        for log in list(changed):
            await turns.another()
            if log.closed:
                del changed[log]
            elif not log.durability.unflushed and now_ms - log.durability.written_ms >= _QUIET_MS:
                del changed[log]
                summary = summarise(log, now_ms)
                if summary is not None:
                    summaries.put(log.directory, summary)
        summaries.write()

    async def _retain(self, now: float) -> None:
        """Applies retention, rolls segments by time, and expires idle producers. Continues with the other
        partitions if one fails."""
        turns = Turns()
        for partition in self.partitions:
            await turns.another()
            try:
                partition.clean(int(now * 1000))
            except TreecastError as error:
                _log.warning("retention failed", partition=partition.name, error=error)
            self.flusher.remove_doomed(partition.log)

    async def _compact(self, now: float) -> None:
        turns = Turns()
        for partition in self.partitions:
            await turns.another()
            if partition.log.config.cleanup_compact and partition.log.compactable:
                try:
                    await self.flusher.compact(partition.log, int(now * 1000))
                except TreecastError as error:
                    _log.warning("compaction failed", partition=partition.name, error=error)


def _open_tables(directory: DataDirectory, settings: BrokerSettings) -> Tables:
    try:
        return Tables(directory.tables, settings.fsync, logged=True)
    except sqlite3.Error as error:
        raise DataDirectoryError(
            f"{directory.tables} cannot be opened ({error}): restore it,"
            " or give another directory with --data"
        ) from error
    except TreecastError as error:
        raise DataDirectoryError(error.detail) from error


def _least_epoch(tables: Tables, directory: DataDirectory) -> int:
    """Returns the leader epoch of logs that were never written: that of the last run started after a crash.

    Such logs have no file that holds the epoch, and clients reject an epoch that decreases.
    """
    if directory.was_clean:
        return int(tables.load(_PARTITIONS).get(_LEAST_EPOCH, b"0"))
    try:
        tables.write([Change(_PARTITIONS, _LEAST_EPOCH, b"%d" % directory.run)])
    except TreecastError as error:
        _log.warning("leader epoch of empty partitions cannot be stored", error=error)
    return directory.run


def _log_settings(settings: BrokerSettings) -> LogSettings:
    return LogSettings(
        fsync=settings.fsync,
        fsync_interval_ms=settings.fsync_interval_ms,
        producer_expiration_ms=settings.producer_id_expiration_ms,
    )


def _group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_min_session_timeout_ms=settings.group_consumer_min_session_timeout_ms,
        consumer_max_session_timeout_ms=settings.group_consumer_max_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_min_heartbeat_interval_ms=settings.group_consumer_min_heartbeat_interval_ms,
        consumer_max_heartbeat_interval_ms=settings.group_consumer_max_heartbeat_interval_ms,
        offset_metadata_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
    )


def _transaction_settings(settings: BrokerSettings) -> TransactionSettings:
    return TransactionSettings(settings.transaction_max_timeout_ms, settings.transactional_id_expiration_ms)
