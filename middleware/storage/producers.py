"""A partition's producer states: idempotence and open transactions (KIP-98, KIP-360).

Per producer id: its epoch, the sequence ranges and offsets of its last five batches, the epoch of the last
transaction coordinator, and the start of its open transaction. The rules are those of Kafka's
ProducerStateManager and ProducerAppendInfo:

- a batch equal in epoch, first and last sequence to a remembered one repeats it: it gets the same offset;
- an older epoch is refused (INVALID_PRODUCER_EPOCH), a newer one must begin with sequence 0;
- otherwise the first sequence must follow the last one (2^31 - 1 is followed by 0), or the batch is
  OUT_OF_ORDER_SEQUENCE. Kafka does the same for a batch older than the five (DUPLICATE_SEQUENCE is unused);
- an unknown producer may begin anywhere, as its records may have been deleted (KIP-360; UNKNOWN_PRODUCER is
  unused).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.record_batch import BatchHeader

REMEMBERED_BATCHES: Final = 5
NO_OFFSET: Final = -1
_MAX_SEQUENCE: Final = 0x7FFF_FFFF


class ProducerBatch:
    """A remembered batch: its last sequence, its last offset, and its number of offsets minus one."""

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """One producer. `batches` is oldest first; `transaction_start` is -1 without an open transaction.

    `last_ms` is the time of the last batch by this host's clock, used for expiry. (Kafka uses the batches'
    own timestamps, and so expires a producer of old records at once.)
    """

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.transaction_start = NO_OFFSET
        self.last_ms = -1
        self.batches: list[ProducerBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """The last data offset, or -1."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self.open: dict[int, int] = {}  # producer id -> first offset, in the order of offsets

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    @property
    def first_open_offset(self) -> int:
        """The first offset of the oldest open transaction, or -1."""
        return next(iter(self.open.values())) if self.open else NO_OFFSET

    def open_transactions(self) -> dict[int, int]:
        """Returns producer id to first offset of its open transaction."""
        return dict(self.open)

    def check(self, header: BatchHeader) -> int | None:
        """Returns the base offset of the batch that this one repeats, or None if it may be appended.

        Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE or INVALID_TRANSACTION_STATE. Returns None for a
        batch without a producer id. `check_marker` checks control batches.
        """
        if header.producer_id < 0:
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        repeated = self._repeated(producer, header)
        if repeated is not None:
            return repeated
        if header.producer_epoch < producer.epoch:
            raise _stale(header.producer_epoch, producer)
        self._check_sequence(producer, header)
        if producer.transaction_start >= 0 and not header.transactional:
            raise TreecastError(
                Fault.INVALID_TRANSACTION_STATE, f"producer {producer.producer_id} has an open transaction"
            )
        return None

    def _repeated(self, producer: Producer, header: BatchHeader) -> int | None:
        if header.producer_epoch != producer.epoch:
            return None
        last = header.last_sequence
        for batch in producer.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return batch.first_offset
        return None

    def _check_sequence(self, producer: Producer, header: BatchHeader) -> None:
        first = header.base_sequence
        if header.producer_epoch != producer.epoch:
            expected = 0
        else:
            last = producer.last_sequence
            expected = 0 if last == _MAX_SEQUENCE else last + 1
        if first != expected:
            raise TreecastError(
                Fault.OUT_OF_ORDER_SEQUENCE,
                f"producer {producer.producer_id} epoch {header.producer_epoch}: expected sequence"
                f" {expected}, got {first}",
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH for a marker of an older producer epoch, NOT_COORDINATOR for one of
        an older transaction coordinator.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise _stale(epoch, producer)
        if coordinator_epoch < producer.coordinator_epoch:
            raise TreecastError(
                Fault.NOT_COORDINATOR,
                f"marker of coordinator epoch {coordinator_epoch}, current is {producer.coordinator_epoch}",
            )

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Records an appended data batch with assigned offsets. A known batch changes nothing."""
        producer = self._entry(header.producer_id, header.producer_epoch)
        if header.producer_epoch < producer.epoch:
            return
        producer.last_ms = now_ms
        if header.base_sequence >= 0 and header.last_offset > producer.last_offset:
            batch = ProducerBatch(
                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
            )
            producer.batches.append(batch)
            if len(producer.batches) > REMEMBERED_BATCHES:
                del producer.batches[0]
        if header.transactional and producer.transaction_start < 0:
            producer.transaction_start = header.base_offset
            self.open[header.producer_id] = header.base_offset

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int) -> int:
        """Applies an appended marker. Returns the first offset of the transaction that it ended, or -1."""
        producer = self._entry(producer_id, epoch)
        if epoch < producer.epoch:
            return NO_OFFSET
        first = producer.transaction_start
        producer.transaction_start = NO_OFFSET
        producer.coordinator_epoch = coordinator_epoch
        producer.last_ms = now_ms
        self.open.pop(producer_id, None)
        return first

    def _entry(self, producer_id: int, epoch: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = Producer(producer_id, epoch)
            self._producers[producer_id] = producer
        elif producer.epoch < epoch:
            producer.epoch = epoch
            producer.batches = []
        return producer

    def restore(self, producer: Producer) -> None:
        """Restores a producer from a snapshot; open transactions may come in any order."""
        self._producers[producer.producer_id] = producer
        if producer.transaction_start >= 0:
            self.open[producer.producer_id] = producer.transaction_start
            self.open = dict(sorted(self.open.items(), key=_by_offset))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Removes producers that sent nothing for `expiration_ms` and have no open transaction."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.transaction_start < 0 and now_ms - producer.last_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._producers.clear()
        self.open.clear()


def _by_offset(item: tuple[int, int]) -> int:
    return item[1]


def _stale(epoch: int, producer: Producer) -> TreecastError:
    return TreecastError(
        Fault.INVALID_PRODUCER_EPOCH,
        f"producer {producer.producer_id} has epoch {producer.epoch}, this is epoch {epoch}",
    )
