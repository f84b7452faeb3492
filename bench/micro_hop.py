"""The cost of a single record between two daemons: both ends of the hop in one thread, over loopback.

At the leader: an append to a followed partition, with its datagram. At the other host: the datagram's
arrival, its append to the replica, and a waiting reader's read. Faces are left out. Times are of the thread
(user and system), so that other work on the machine only disturbs the caches.

    python -m bench.micro_hop [--records N] [--size BYTES]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.long_poll import FetchWait, LongPolls
from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.broker.values import Isolation, Topic
from treecast.middleware.daemon.tuning import new_event_loop
from treecast.middleware.fabric.channel import Channels
from treecast.middleware.fabric.core import sender
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import BrokerCounters, FabricCounters, RelayCounters, StorageCounters
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.relay.partitions.ports import PartitionSettings
from treecast.middleware.relay.partitions.proxy import LeaderProxy
from treecast.middleware.relay.partitions.replica import Replica
from treecast.middleware.relay.partitions.stream_log import LedStream, PartitionStreamLog, StreamMemory
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import LogSettings
from treecast.middleware.wire.record_batch import build_batch
from treecast.middleware.wire.segment import KeyRing

NAME = TopicPartition("hop", 0)
_WARM = 0.2  # the share of the records that is not counted
_APART = 0.0005  # seconds between records, for the loop's turn: closer records are sent together


def _fabric(host: int) -> Fabric:
    """Its socket is read by `hop`, and not by the loop."""
    fabric = Fabric(
        host,
        FabricSettings(carriers=()),
        KeyRing({1: b"k" * 32}, 1),
        FabricCounters(),
        random.Random(host),
    )
    loop = asyncio.get_running_loop()
    fabric.open(("127.0.0.1", 0), loop)
    loop.remove_reader(fabric._udp.sock.fileno())
    return fabric


def _log(folder: Path) -> PartitionLog:
    return PartitionLog.open(folder, TopicConfig.of(), LogSettings(), StorageCounters(), 0)


class Hop:
    """A partition that fabric `near` leads and fabric `far` follows."""

    def __init__(self, folder: Path) -> None:
        self.near, self.far = _fabric(1), _fabric(2)
        self.near.set_host(2, self.far.address)
        self.far.set_host(1, self.near.address)
        self.polls = LongPolls(asyncio.get_running_loop())
        unused: Any = None
        log = _log(folder / "near")
        self.partition = LocalPartition(NAME, log, unused, unused, BrokerCounters(), time.time)
        stream_log = PartitionStreamLog(log, StreamMemory())
        origin = self.near.originate(7, 1, log=stream_log, live_from=0)
        topic = Topic(NAME.topic, uuid.UUID(int=1), 1, TopicConfig.of())
        self.partition.tap(LedStream(topic, self.partition, stream_log, origin, unused, unused))
        origin.add_receiver(2, 0)
        self.replica = FollowedPartition(NAME, _log(folder / "far"))
        settings = PartitionSettings()
        leader = LeaderProxy(topic.topic_id, 0, 1, Channels.__new__(Channels), settings)
        follower = Replica(
            self.replica,
            leader,
            self.far,
            settings,
            RelayCounters(),
            time.time,
            self.polls,
            lambda: None,
            tail=False,
            memory=StreamMemory(),
            agreed="",
            on_agreed=lambda directory: None,
        )
        follower.checked = follower.current = True
        follower.joined = self.far.join(1, 7, 1, follower, progress=Progress(0, 0))
        self.read = 0  # offset

    def one(self, batch: bytearray) -> tuple[int, int]:
        """Returns thread nanoseconds of both ends for one record with a waiting reader."""
        watched: Any = [self.replica]
        FetchWait(self.polls, watched, Isolation.READ_UNCOMMITTED, 1, 0.5, self._arrived)
        began = time.thread_time_ns()
        self.partition.append(memoryview(batch), 1, None)
        sent = time.thread_time_ns()
        self.far._on_readable(self.far._udp)
        ended = time.thread_time_ns()
        return sent - began, ended - sent

    def _arrived(self) -> None:
        found = self.replica.read(self.read, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
        assert found.size
        self.read = found.high_watermark

    async def catch_up(self, offset: int) -> None:
        """Waits until data that was not sent or delivered at once has arrived."""
        while self.read < offset:
            await asyncio.sleep(0.001)
            self.far._on_readable(self.far._udp)

    def close(self) -> None:
        self.near.close()
        self.far.close()


async def measure(folder: Path, records: int, size: int) -> list[tuple[int, int]]:
    """Returns, for each record but the first ones, thread nanoseconds at the leader and at the replica."""
    hop = Hop(folder)
    batch = bytearray(build_batch([Record(None, random.Random(1).randbytes(size), (), 1)]))
    taken = []
    for number in range(records):
        await asyncio.sleep(_APART)
        hop.near._on_readable(hop.near._udp)  # reports
        taken.append(hop.one(batch))
        await hop.catch_up(number + 1)
    hop.close()
    return taken[int(records * _WARM) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("--size", type=int, default=100)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=new_event_loop) as runner:
        found = runner.run(measure(Path(folder), chosen.records, chosen.size))
    form = "interpreted" if str(sender.__file__).endswith(".py") else "compiled"
    leader, replica = (median(one) / 1000 for one in zip(*found, strict=True))
    print(
        f"{form}, {chosen.size} B: leader {leader:.1f} us, replica and its reader {replica:.1f} us a record"
    )


if __name__ == "__main__":
    main()
