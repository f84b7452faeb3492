"""`Producer`: one task's records into partitions, staged in its own transaction or just idempotent."""

from __future__ import annotations

import time
from collections.abc import Sequence

from treecast.middleware.api.discovery import Address
from treecast.middleware.load.frames import ClusterView, LoadError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity
from treecast.middleware.model.records import Compression
from treecast.middleware.wire.record_batch import seal_batch

from ..errors import WriteError
from ..links import LINKS
from ..servers import Servers, one
from ..source.asking import LOOKS
from ..source.offsets import Partition
from . import frames
from .frames import Staged
from .lane import Lane, meaning
from .rows import Pending

_PAUSE_S = 0.1
_UNKNOWN_TOPIC = 3
_DECIDED = 48  # InitProducerId's error for a part of a committed batch


class Producer:
    """Writes one task's records. Sockets are opened on demand."""

    def __init__(
        self,
        servers: Servers,
        *,
        lease_ms: int,
        compression: Compression,
        timeout: float,
    ) -> None:
        self._servers = servers
        self._transactional_id: str | None = None
        self._lease_ms = lease_ms
        self._compression = compression
        self._timeout = timeout
        self._control = Lane(servers, timeout)
        self._lanes: dict[Address, Lane] = {}
        self._views: dict[str, ClusterView] = {}
        self._identity = NO_PRODUCER
        self._sequences: dict[Partition, int] = {}
        self._added: set[Partition] = set()

    @property
    def servers(self) -> Servers:
        return self._servers

    @property
    def staged(self) -> Staged | None:
        """The part written in a transaction, if anything was written."""
        if self._transactional_id is None or not self._added:
            return None
        return Staged(self._transactional_id, self._identity.producer_id, self._identity.epoch)

    def begin(self, transactional_id: str | None) -> bool:
        """Prepares the producer, before anything is sent; None writes without a transaction.

        Returns False if the batch of this part, or a later one, is committed already.
        """
        self._transactional_id = transactional_id
        found: list[ProducerIdentity] = []

        def read(payload: bytes) -> int:
            error, identity = frames.parse_init(payload)
            found.append(identity)
            return error

        error = self._control.ask(frames.init_request(self._transactional_id, self._lease_ms), read)
        if error == _DECIDED:
            return False
        if error:
            raise WriteError(f"no producer id at {self._servers}: {meaning(error)}")
        self._identity = found[-1]
        return True

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions. Raises WriteError if the topic does not exist."""
        return len(self._known(topic).topics[topic][1])

    def exists(self, topic: str) -> bool:
        return self._view(topic).topics.get(topic, (_UNKNOWN_TOPIC, {}))[0] == 0

    def topic_id(self, topic: str) -> str:
        """Returns the id of an existing topic; empty if the broker returns none."""
        return self._known(topic).ids.get(topic, "")

    def _known(self, topic: str) -> ClusterView:
        view = self._view(topic)
        error, leaders = view.topics.get(topic, (_UNKNOWN_TOPIC, {}))
        if error or not leaders:
            raise WriteError(f"there is no topic {topic} at {self._servers} (error {error}); make it first")
        return view

    def _view(self, topic: str) -> ClusterView:
        if topic not in self._views:
            self._views[topic] = self._ask_view(topic)
        return self._views[topic]

    def _ask_view(self, topic: str) -> ClusterView:
        """Waits until the cluster is up and the topic, if it exists, has leaders. Several answers must lack a
        topic: one can come from a broker that has just started.
        """
        deadline = time.monotonic() + self._timeout
        looks = 0
        while True:
            try:
                with LINKS.lent_any(self._servers, self._timeout) as link:
                    view = link.metadata([topic])
                error, leaders = view.topics.get(topic, (_UNKNOWN_TOPIC, {}))
                looks += error == _UNKNOWN_TOPIC
                if looks == LOOKS or (not error and all(node in view.brokers for node in leaders.values())):
                    return view
                said: Exception = LoadError(f"error {error}", error)
            except (OSError, LoadError) as failed:
                said = failed
            if time.monotonic() > deadline:
                raise WriteError(f"no Kafka face answers at {self._servers}: {said}") from said
            time.sleep(_PAUSE_S)

    def send(self, batches: Sequence[tuple[Partition, Pending]]) -> None:
        """Sends waiting batches; returns before they are acknowledged."""
        by_lane: dict[Address, dict[Partition, bytes]] = {}
        self._add([partition for partition, _ in batches])
        for partition, pending in batches:
            by_lane.setdefault(self._leader(partition), {})[partition] = self._sealed(partition, pending)
        for address, sealed in by_lane.items():
            lane = self._lanes.get(address)
            if lane is None:
                lane = self._lanes[address] = Lane(one(address), self._timeout)
            lane.send(frames.produce_request(self._transactional_id, sealed))

    def _add(self, partitions: Sequence[Partition]) -> None:
        """Makes partitions part of the transaction; before the first record goes there."""
        fresh = [partition for partition in partitions if partition not in self._added]
        if self._transactional_id is None or not fresh:
            return
        errors: dict[Partition, int] = {}

        def read(payload: bytes) -> int:
            errors.update(frames.parse_add(payload))
            return next((error for error in errors.values() if error), 0)

        frame = frames.add_request(self._transactional_id, self._identity, fresh)
        if error := self._control.ask(frame, read):
            raise WriteError(f"{self._transactional_id} at {self._servers}: {meaning(error)}")
        self._added.update(fresh)

    def _leader(self, partition: Partition) -> Address:
        view = self._view(partition.topic)
        _, leaders = view.topics[partition.topic]
        return Address(*view.brokers[leaders[partition.number]])

    def _sealed(self, partition: Partition, pending: Pending) -> bytes:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + pending.count) & 0x7FFFFFFF
        return seal_batch(
            pending.body(),
            pending.count,
            pending.base_time,
            pending.max_time,
            compression=self._compression,
            producer=self._identity,
            base_sequence=sequence,
            transactional=self._transactional_id is not None,
        )

    def finish(self) -> None:
        """Returns when everything is acknowledged."""
        for lane in self._lanes.values():
            lane.settle()

    def close(self) -> None:
        for lane in (self._control, *self._lanes.values()):
            lane.close()


def end_parts(
    servers: Servers,
    whole: str,
    batch: int,
    parts: Sequence[Staged],
    timeout: float,
    *,
    committed: bool,
    content: str = "",
) -> None:
    """Commits a batch that tasks have staged, or aborts it; a committed batch stays so.

    Raises WriteError if it is refused, for example because a later batch, or this one with other rows, was
    committed.
    """
    said: list[str] = []

    def read(payload: bytes) -> int:
        error, why = frames.parse_end(payload)
        said.append(why)
        return error

    lane = Lane(servers, timeout)
    try:
        frame = frames.end_parts_request(whole, batch, parts, committed=committed, content=content)
        error = lane.ask(frame, read)
    finally:
        lane.close()
    if error:
        why = _end_meaning(error, said[-1], repeated=not parts)
        raise WriteError(f"batch {batch} of {whole} at {servers} is not committed: {why}")


def _end_meaning(error: int, said: str, *, repeated: bool) -> str:
    if error == 48 and repeated:
        return (
            "its rows differ from those written under the same number before, and are not written: "
            f"{said or 'the broker gives no reason'}. The checkpoint may be older than the written rows (a "
            "copy, or a restored one), or batch numbers may have restarted under the same queryName. Start "
            "with a new checkpoint, choose another queryName, or set delivery to atLeastOnce, which always "
            "writes the rows. If the query gives other rows each time a batch is repeated (with uuid(), the "
            "present time, a sum of doubles or a compacted topic), set repeatedBatch to counts, which "
            "compares only numbers of rows, or to skip, which compares nothing"
        )
    if error == 48:
        return (
            "the staged rows of a task are no longer open: they were staged for longer than stagingLeaseMs, "
            "or another run of the query aborted them. Start the query again: it repeats the batch"
        )
    if error == 49:
        return (
            "the broker knows no batches of parts: it is no Treecast daemon. Write to one, or set delivery "
            "to atLeastOnce"
        )
    return meaning(error)


def abort_part(servers: Servers, staged: Staged, timeout: float) -> None:
    """Ends the part of a failed task. If nobody answers, it ends by itself later."""
    try:
        with LINKS.lent_any(servers, timeout) as link:
            link.connection.call(frames.end_request(staged, committed=False))
    except (OSError, LoadError):
        pass
