"""`Writer`: carries batches to the target in transactions, with the offsets up to which they were read.

    add partitions --> produce, in the order of each partition --> commit the offsets read --> end

So a record and the place that it was read from are both at the target, or neither is: a kill at any moment
leaves nothing lost and nothing twice. After a failure a new epoch of the producer ends what was open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from treecast.agents.kafka.asking import KafkaOwner
from treecast.agents.kafka.cluster import KafkaCluster
from treecast.agents.kafka.groups import KafkaGroups
from treecast.agents.kafka.transactions import KafkaTransactions
from treecast.middleware.broker.values import Appended, CommittedOffset, InitProducer, MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity, TopicPartition
from treecast.middleware.wire.record_batch import sign_batch

from .batches import Batch

_TRANSACTION_MS: Final = 60_000
_ALL: Final = -1  # acks
_AGAIN_SECONDS: Final = 0.01
_AGAIN_MOST: Final = 1000  # waits for the markers of the transaction before
_SEQUENCES: Final = 0x7FFF_FFFF
# The target takes this batch in no case, and others all the same.
REFUSED: Final = frozenset(
    {
        Fault.BATCH_TOO_LARGE,
        Fault.INVALID_TIMESTAMP,
        Fault.INVALID_RECORD,
        Fault.UNSUPPORTED_COMPRESSION,
        Fault.UNSUPPORTED_BATCH_FORMAT,
    }
)

T = TypeVar("T")
Positions = Mapping[TopicPartition, CommittedOffset]


class Load(Struct):
    """A batch on its way to a partition of the target. `source`: where it was read."""

    source: TopicPartition
    target: TopicPartition
    batch: Batch


class Refused(Exception):
    """The target takes some of the batches in no case: `loads`, by their reason. Nothing was carried."""

    def __init__(self, loads: list[tuple[Load, TreecastError]]) -> None:
        super().__init__(str(loads[0][1]))
        self.loads = loads


class Writer:
    """The transactional producer of one way. Refusals are TreecastErrors; `begin` has to follow them."""

    def __init__(self, cluster: KafkaCluster, name: str, look: Callable[[], None]) -> None:
        """`name`: the transactional id, and the group that holds the offsets."""
        self.owner = KafkaOwner(cluster, look)
        self.groups = KafkaGroups(cluster)
        self.transactions = KafkaTransactions(cluster)
        self.producer = NO_PRODUCER
        self.carried = 0  # transactions
        self._name = name
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self) -> ProducerIdentity:
        """Ends what an earlier run, or a failure, has left open."""
        request = InitProducer(self._name, _TRANSACTION_MS)
        self.producer = await _patiently(lambda: self.transactions.init_producer(request))
        self._sequences.clear()
        return self.producer

    async def carry(
        self, loads: Sequence[Load], positions: Positions, member: MemberIdentity
    ) -> list[Appended]:
        """Carries all loads in one transaction, and returns where each one is. Raises Refused."""
        targets = sorted({one.target for one in loads})
        if targets:
            await _patiently(lambda: self._add(targets))
        placed = await self._produce(loads)
        await _patiently(lambda: self.transactions.add_offsets(self._name, self.producer, self._name))
        errors = await self.groups.commit_transaction_offsets(
            self._name, member, self._name, self.producer, positions
        )
        for error in errors.values():
            raise error
        await self.transactions.end(self._name, self.producer, committed=True)
        self.carried += 1
        return placed

    async def _add(self, targets: Sequence[TopicPartition]) -> None:
        for error in (await self.transactions.add_partitions(self._name, self.producer, targets)).values():
            raise error

    async def _produce(self, loads: Sequence[Load]) -> list[Appended]:
        asked = [self._send(one) for one in loads]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [
            (one, answer)
            for one, answer in zip(loads, answers, strict=True)
            if isinstance(answer, TreecastError) and answer.fault in REFUSED
        ]
        if refused:
            await self.transactions.end(self._name, self.producer, committed=False)
            await self.begin()
            raise Refused(refused)
        placed: list[Appended] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            placed.append(answer)
        return placed

    def _send(self, load: Load) -> asyncio.Future[Appended]:
        sequence = self._sequences.get(load.target, 0)
        self._sequences[load.target] = (sequence + load.batch.count) & _SEQUENCES
        sign_batch(memoryview(load.batch.data), 0, load.batch.header, self.producer, sequence)
        return self.owner.produce(load.target, bytes(load.batch.data), _ALL, self._name)


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Calls until the markers of the transaction before are written."""
    for _ in range(_AGAIN_MOST):
        try:
            return await call()
        except TreecastError as error:
            if error.fault is not Fault.CONCURRENT_TRANSACTIONS:
                raise
        await asyncio.sleep(_AGAIN_SECONDS)
    raise TreecastError(Fault.TIMED_OUT, "the target does not end the transaction before")
