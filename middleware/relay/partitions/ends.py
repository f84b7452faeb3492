"""Reports the ends of led logs that have grown to the coordinator, many at once.

The coordinator records them: if this host's disk is lost, the lost records can be named. A coordinator whose
store was replaced has no record, or an old one: it is told the ends of all logs, of empty ones too.
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
_LAST_SECONDS = 1.0  # that a host which leaves waits for its last report


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
        """Stops reporting, after a last report: a host that leaves in order has no more than that."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self.tell(last=True)
        except (TreecastError, TimeoutError) as error:
            _log.info("coordinator does not hear where logs ended", error=error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.tell()
            except TreecastError as error:
                if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                    _log.warning("coordinator does not record where logs end", error=error)

    async def tell(self, *, last: bool = False) -> None:
        """Reports the logs that have grown since their last report, or that have stopped growing.

        `last`: nothing is written any more.
        """
        history = self._history()
        replaced = self._of not in ("", history)
        if self._of != history:
            self._told.clear()
        # logs of an earlier run are quiet until they grow: else each would be told of twice at a start
        new = self._grown(empty=replaced, quiet=last or not self._of)
        names = list(new)
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            await self._record.put_ends([new[name] for name in some])
            for name in some:
                self._told[name] = new[name]
        self._of = history

    def _grown(self, *, empty: bool, quiet: bool) -> dict[TopicPartition, PartitionEnd]:
        topics, found = self._topics.topics(), {}
        led = list(self._partitions.led())
        for partition in led:
            topic, log = topics.get(partition.name.topic), partition.log
            told = self._told.get(partition.name)
            if topic is None or not (empty or log.end_offset or told):
                continue
            epoch = last_epoch(log.epoch_entries, log.end_offset)
            same = told is not None and (told.leader_epoch, told.end) == (epoch, log.end_offset)
            if told is None or not (same and told.quiet):
                found[partition.name] = PartitionEnd(
                    topic.topic_id, partition.name.partition, epoch, log.end_offset, quiet=quiet or same
                )
        if len(self._told) > 2 * len(led):  # most belong to deleted topics
            here = {partition.name for partition in led}
            self._told = {name: ended for name, ended in self._told.items() if name in here}
        return found
