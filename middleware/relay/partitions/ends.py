"""Reports the ends of led logs that have grown to the coordinator, many at once.

The coordinator records them: if this host's disk is lost, the lost records can be named.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from treecast.middleware.api.entries import PartitionEnd
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.logs import Log

from .lost_disk import last_epoch
from .ports import Record, Topics

_log = Log(__name__)

_AT_ONCE = 5_000


class Ends:
    """The reports, in use from `start` to `close`."""

    def __init__(
        self,
        partitions: LocalPartitions,
        topics: Topics,
        record: Record,
        history: Callable[[], str],
        every: float,
    ) -> None:
        """`history` returns the coordinator's known history. After a change all ends are reported again."""
        self._history = history
        self._of = ""  # the history to which `_told` belongs
        self._partitions = partitions
        self._topics = topics
        self._record = record
        self._every = every
        self._told: dict[TopicPartition, PartitionEnd] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            lasting("report of where logs end", self._run, BackOff(random.Random())), name="ends of logs"
        )

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.tell()
            except TreecastError as error:
                if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                    _log.warning("coordinator does not record where logs end", error=error)

    async def tell(self) -> None:
        """Reports the logs that have grown since their last report."""
        if self._of != self._history():
            self._of = self._history()
            self._told.clear()
        new = self._grown()
        names = list(new)
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            await self._record.put_ends([new[name] for name in some])
            for name in some:
                self._told[name] = new[name]

    def _grown(self) -> dict[TopicPartition, PartitionEnd]:
        topics, found = self._topics.topics(), {}
        led = list(self._partitions.led())
        for partition in led:
            topic = topics.get(partition.name.topic)
            if topic is None or not partition.log.end_offset:
                continue
            log = partition.log
            epoch = last_epoch(log.epoch_entries, log.end_offset)
            ended = PartitionEnd(topic.topic_id, partition.name.partition, epoch, log.end_offset)
            if self._told.get(partition.name) != ended:
                found[partition.name] = ended
        if len(self._told) > 2 * len(led):  # most belong to deleted topics
            here = {partition.name for partition in led}
            self._told = {name: ended for name, ended in self._told.items() if name in here}
        return found
