"""Telemetry of a joined host: what it has sent to other hosts, by intervals, in a topic `_treecast.*`.

`Reporter` makes an interval's record from counts of carriers and accounts of streams, and does no I/O.
`Telemetry` appends the records. What cannot be appended waits, a bounded number of intervals; what the topic
refuses for its size is dropped. A reader sees by the missing numbers what was lost, and by a number that it
has had already what was repeated.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.broker import Cluster, NewTopic, Topic
from treecast.middleware.broker.pubsub import PubSub
from treecast.middleware.fabric.carriers.labels import Labels
from treecast.middleware.fabric.carriers.srv6 import Srv6
from treecast.middleware.fabric.core.accounting import Row
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.filter_tally import ChangesTaken, FiltersTaken, SubscriptionTally
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Record
from treecast.middleware.model.tally import (
    STREAMS,
    Growth,
    Hosts,
    Moved,
    Pair,
    SetCount,
    Standing,
    Taken,
    Tally,
)
from treecast.middleware.model.topics import OWN_PREFIX
from treecast.middleware.wire.record_batch import build_batch

from .joining import Joining

_log = Log(__name__)

WAITING: Final = 30  # intervals that wait for a leader; then the oldest are lost
_APPEND_SECONDS: Final = 30.0
_MICRO: Final = 1_000_000
_AGAIN: Final = frozenset({"repair", "replay"})

Sent = tuple[str, str]  # stream, carrier
Again = tuple[int, int]  # packets, bytes


class Counting(Protocol):
    """The input of a reporter: a host's sending, as names."""

    def taken(self) -> Iterable[tuple[str, Taken, Callable[[Hosts], list[str]]]]:
        """Yields, per carrier, its name, its counts since the last call, and how its hosts are named."""
        ...

    def accounts(self) -> Iterable[tuple[Pair, Standing]]:
        """Yields the present accounts by names of stream and receiver."""
        ...

    def filters(self) -> tuple[FiltersTaken, Callable[[int], str]]:
        """Returns what filters of subscriptions have judged since the last call, and how hosts are named."""
        ...

    def changes(self) -> ChangesTaken:
        """Returns the changes of subscriptions since the last call."""
        ...

    def sent_again(self) -> Iterable[tuple[Sent, Again]]:
        """Yields what each stream has sent again by each carrier since it began, in one part or more: for
        repair, and for replay.
        """
        ...


class Hashing(Struct, frozen=True):
    """`key`: of the cluster, hashes ids of clients. `all`: it hashes names of streams, topics and filters
    too.
    """

    key: bytes = b"treecast"
    all: bool = False

    def client(self, name: str) -> str:
        return topics.hashed(name, self.key)

    def text(self, text: str) -> str:
        return topics.hashed(text, self.key) if self.all and text else text


PLAIN: Final = Hashing()


class Reporter:
    """The intervals of one run of a host, from 1. `zone`: of the host; empty: none."""

    def __init__(
        self,
        host: str,
        boot: int,
        counting: Counting,
        now: float,
        hashing: Hashing = PLAIN,
        zone: str = "",
    ) -> None:
        self._host = host
        self._zone = zone
        self._boot = boot
        self._counting = counting
        self._hashing = hashing
        self._again: dict[Sent, Again] = _added(counting.sent_again())
        self._growth = Growth()
        self._growth.take(counting.accounts())
        self._seq = 0
        self._from = now

    def record(self, now: float) -> Record:
        """Ends the interval at `now` (Unix time) and returns its record."""
        self._seq += 1
        message = pb.TelemetryInterval(
            v=topics.VERSION,
            host=self._host,
            zone=self._zone,
            boot=self._boot,
            seq=self._seq,
            from_us=int(self._from * _MICRO),
            to_us=int(now * _MICRO),
            sampled=1.0,
        )
        self._from = now
        for carrier, taken, names in self._counting.taken():
            message.packets += taken.packets
            message.bytes += taken.size
            message.sampled = min(message.sampled, taken.sampled)
            sets = (_sent(carrier, names(hosts), count) for hosts, count in taken.sets)
            message.sets.extend(one for one in sets if one.receivers)
        self._add(message, self._growth.take(self._counting.accounts()))
        self._add_filters(message)
        self._add_changes(message)
        self._add_repairs(message)
        return Record(self._host.encode(), topics.encode(message), (), int(now * 1000))

    def _add(self, message: pb.TelemetryInterval, moved: Moved) -> None:
        message.streams_left_out = moved.left_out
        message.records_left_out = moved.records_left_out
        for (stream, receiver), one in moved.pairs:
            message.streams.add(
                stream=self._hashing.text(stream),
                receiver=receiver,
                addressed=one.addressed,
                received=one.received,
                filtered=one.filtered,
                lost=one.lost,
                repaired=one.repaired,
                replayed=one.replayed,
            )

    def _add_filters(self, message: pb.TelemetryInterval) -> None:
        taken, named = self._counting.filters()
        message.filters_sampled = taken.sampled
        for origin, wishes, count in taken.counts:
            one = message.filters.add(
                origin=named(origin) if origin else self._host,
                count=wishes.count,
                open=wishes.open,
                messages=count.messages,
                passed=count.passed,
                bytes=count.size,
                passed_bytes=count.passed_size,
                cpu_us=count.nanoseconds // 1000,
            )
            for pattern, text in wishes.listed:
                one.wishes.add(pattern=self._hashing.text(pattern), filter=self._hashing.text(text))

    def _add_changes(self, message: pb.TelemetryInterval) -> None:
        taken = self._counting.changes()
        message.changes_left_out = taken.left_out
        for one in taken.listed:
            message.changes.add(
                client=self._hashing.client(one.client),
                begun=one.begun,
                pattern=self._hashing.text(one.pattern),
                filter=self._hashing.text(one.filter),
            )

    def _add_repairs(self, message: pb.TelemetryInterval) -> None:
        """Adds what was sent again: the streams with most bytes."""
        before, self._again = self._again, _added(self._counting.sent_again())
        grown = []
        for sent, now in self._again.items():
            packets, size = before.get(sent, (0, 0))
            if now[1] > size:
                grown.append((size - now[1], sent, now[0] - packets))
        for negative, (stream, carrier), packets in sorted(grown)[:STREAMS]:
            message.repairs.add(
                stream=self._hashing.text(stream), carrier=carrier, packets=packets, bytes=-negative
            )


def _added(parts: Iterable[tuple[Sent, Again]]) -> dict[Sent, Again]:
    found: dict[Sent, Again] = {}
    for sent, (packets, size) in parts:
        before = found.get(sent, (0, 0))
        found[sent] = before[0] + packets, before[1] + size
    return found


def _sent(carrier: str, receivers: list[str], count: SetCount) -> pb.SentSet:
    header = count.header
    return pb.SentSet(
        carrier=carrier,
        receivers=receivers,
        packets=count.packets,
        bytes=count.size,
        header_bytes=count.packets * header.size,
        hop_labels=count.packets * header.hops,
        stop_labels=count.packets * header.stops,
        tree_labels=count.packets * len(header.trees),
        rule_version=header.version,
        trees=header.trees,
    )


class JoinedCounting:
    """`Counting` of a joined host: its carriers by labels and SRv6, the accounts of its streams, and the
    subscriptions of its clients.
    """

    def __init__(self, joining: Joining, hub: PubSub) -> None:
        self._joining = joining
        self._tally = hub.tally = SubscriptionTally(time.perf_counter_ns)
        carriers = joining.relay.neighbours.fabric.carriers
        self._carriers = [one for one in carriers if isinstance(one, (Labels, Srv6))]
        for carrier in self._carriers:
            carrier.tally = Tally()

    def taken(self) -> Iterator[tuple[str, Taken, Callable[[Hosts], list[str]]]]:
        for carrier in self._carriers:
            if carrier.tally is not None:
                yield carrier.name, carrier.tally.take(), carrier.names

    def accounts(self) -> Iterator[tuple[Pair, Standing]]:
        for origin in self._joining.relay.neighbours.fabric.origins():
            if not origin.name.startswith(OWN_PREFIX):  # or telemetry would report itself for ever
                yield from self._named(origin.name, origin.rows().items())
        events = self._joining.relay.distribution.events
        for name, rows in events.sending.accounts.resting() if events is not None else ():
            yield from self._named(name, rows.items())

    def filters(self) -> tuple[FiltersTaken, Callable[[int], str]]:
        return self._tally.filters.take(), self._name

    def changes(self) -> ChangesTaken:
        return self._tally.changes.take()

    def sent_again(self) -> Iterator[tuple[Sent, Again]]:
        for origin in self._joining.relay.neighbours.fabric.origins():
            for one in origin.sent():
                if one.purpose in _AGAIN and one.size:
                    yield (origin.name, one.carrier), (one.packets, one.size)

    def leads(self, index: int) -> bool:
        """Returns whether this host leads a partition of the topic of intervals."""
        leader = self._joining.link.view.leader(topics.SENDS, index)
        return leader is not None and leader.leader == self._joining.host.host_id

    def _named(self, stream: str, rows: Iterable[tuple[int, Row]]) -> Iterator[tuple[Pair, Standing]]:
        for host, row in rows:
            yield (stream, self._name(host)), _standing(row)

    def _name(self, host: int) -> str:
        known = self._joining.link.view.host(host)
        return known.name if known is not None else f"host {host}"


def _standing(row: Row) -> Standing:
    lost = sum(row.expired.values()) + sum(row.refused.values())
    received = row.live + row.repaired + row.replayed
    return Standing(row.addressed, received, row.filtered, lost, row.repaired, row.replayed)


class Telemetry:
    """Writes a record per interval (`seconds`), from `start` to `close`.

    `leads`: whether this host leads a partition of the topic. It prefers these: nothing then crosses the
    network, and no other host has to be up. `too_large`: records that the topic has refused for their size.
    """

    def __init__(
        self, cluster: Cluster, reporter: Reporter, seconds: float, leads: Callable[[int], bool]
    ) -> None:
        self._cluster = cluster
        self._reporter = reporter
        self._seconds = seconds
        self._leads = leads
        self._waiting: deque[Record] = deque(maxlen=WAITING)
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self.too_large = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="telemetry")

    async def close(self) -> None:
        """Ends the task; the last interval is written if its leader answers at once."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        await self.write(seconds=1.0)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self.write()

    async def write(self, seconds: float = _APPEND_SECONDS) -> None:
        """Ends an interval, and appends all that wait, the oldest first."""
        self._waiting.append(self._reporter.record(time.time()))
        try:
            async with asyncio.timeout(seconds):
                while self._waiting:
                    await self._append_or_drop(self._waiting[0])
                    self._waiting.popleft()
        except (TreecastError, TimeoutError) as error:
            self._tell(str(error) or "the leader does not answer")
        except Exception:
            _log.exception("telemetry failed")
        else:
            self._tell("")

    async def _append_or_drop(self, record: Record) -> None:
        try:
            await self._append(record)
        except TreecastError as error:
            if error.fault is not Fault.BATCH_TOO_LARGE:
                raise
            # It would be refused for ever, and those behind it would wait.
            self.too_large += 1
            size = len(record.value or b"")
            _log.warning(
                "telemetry dropped an interval", reason=str(error), size=size, dropped=self.too_large
            )

    async def _append(self, record: Record) -> None:
        topic = self._cluster.definitions.topics().get(topics.SENDS)
        if topic is None:
            topic = await self._made()
        own = [index for index in range(topic.partitions) if self._leads(index)]
        among = own or list(range(topic.partitions))
        index = among[topics.place_of((record.key or b"").decode(), len(among))]
        batch = memoryview(bytearray(build_batch([record])))
        appended = self._cluster.partition(topics.SENDS, index).append(batch, 1, None)
        if isinstance(appended, Future):
            await appended

    async def _made(self) -> Topic:
        """Returns the topic, which this host makes, or another one meanwhile."""
        name = topics.SENDS
        try:
            new = NewTopic(name, topics.PARTITIONS[name], topics.SETTINGS[name])
            return await self._cluster.definitions.create_topic(new)
        except TreecastError as error:
            found = self._cluster.definitions.topics().get(name)
            if error.fault is not Fault.TOPIC_EXISTS or found is None:
                raise
            return found

    def _tell(self, problem: str) -> None:
        if problem and not self._failing:
            _log.warning("telemetry waits", reason=problem, intervals=len(self._waiting))
        elif not problem and self._failing:
            _log.info("telemetry is written again")
        self._failing = bool(problem)
