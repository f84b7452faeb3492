"""`RoutedTransactions`: transactional ids wherever their homes are, and what asks whether one is open."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from treecast.middleware.api.v1 import peer_homes_pb2 as pb
from treecast.middleware.broker.cluster import TransactionHome
from treecast.middleware.broker.transactions.parts import check_names, home_name
from treecast.middleware.broker.values import InitProducer, PartitionErrors
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from . import messages as m
from .finder import HomeFinder
from .keeper import HomeKeeper
from .methods import HomeMethod
from .ports import HomeAt
from .router import HomeRouter

# An end waits for leaders and groups' homes, which the home gives up on after 10 s each.
_LONG_SECONDS = 30.0


def _rest(whole: str, transactional_id: str) -> str:
    """What follows the whole's id in that of a part; empty for the whole itself."""
    return transactional_id[len(whole) :]


class LocalTransactions(TransactionHome, Protocol):
    """`broker.transactions.TransactionCoordinator`."""

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> None: ...

    def verify_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None: ...


class RemoteTransactionHome:
    """Implements `cluster.TransactionHome` for one id, whose home is the host `at`, by calls to it."""

    def __init__(self, router: HomeRouter, at: HomeAt, target: pb.HomeTarget) -> None:
        self._router = router
        self._at = at
        self._target = target

    async def init_producer(self, request: InitProducer) -> ProducerIdentity:
        message = pb.HomeInit(
            home=self._target,
            transaction_timeout_ms=request.transaction_timeout_ms,
            known=m.producer(request.known),
        )
        call = self._router.call(self._at, HomeMethod.INIT, message, pb.HomeProducer, _LONG_SECONDS)
        return m.read_producer(await call)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> PartitionErrors:
        message = pb.HomeAddPartitions(
            home=self._target, producer=m.producer(producer), partitions=m.partitions(partitions)
        )
        answer = await self._router.call(self._at, HomeMethod.ADD_PARTITIONS, message, pb.HomePartitionErrors)
        return m.read_partition_errors(answer)

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        message = pb.HomeAddOffsets(home=self._target, producer=m.producer(producer), group_id=group_id)
        await self._router.call(self._at, HomeMethod.ADD_OFFSETS, message, pb.HomeDone)

    async def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        message = pb.HomeEnd(home=self._target, producer=m.producer(producer), committed=committed)
        await self._router.call(self._at, HomeMethod.END, message, pb.HomeDone, _LONG_SECONDS)

    async def end_parts(
        self,
        whole: str,
        batch: int,
        parts: Mapping[str, ProducerIdentity],
        *,
        committed: bool,
        content: str = "",
    ) -> None:
        named = [
            pb.HomePart(part=_rest(whole, name), producer=m.producer(who)) for name, who in parts.items()
        ]
        message = pb.HomeEndParts(
            home=self._target, batch=batch, parts=named, committed=committed, content=content
        )
        await self._router.call(self._at, HomeMethod.END_PARTS, message, pb.HomeDone, _LONG_SECONDS)

    async def verify(self, producer: ProducerIdentity, partition: TopicPartition) -> None:
        message = pb.HomeVerify(
            home=self._target, producer=m.producer(producer), partition=m.partition(partition)
        )
        await self._router.call(self._at, HomeMethod.VERIFY, message, pb.HomeDone)

    async def verify_offsets(self, producer: ProducerIdentity, group_id: str) -> None:
        message = pb.HomeVerify(home=self._target, producer=m.producer(producer), group_id=group_id)
        await self._router.call(self._at, HomeMethod.VERIFY, message, pb.HomeDone)


class RoutedTransactions:
    """Implements `cluster.TransactionHome` for every id, and the guards of partitions and groups."""

    def __init__(
        self, router: HomeRouter, finder: HomeFinder, keeper: HomeKeeper, local: LocalTransactions
    ) -> None:
        self._router = router
        self._finder = finder
        self._keeper = keeper
        self._local = local

    def _there(self, at: HomeAt, target: pb.HomeTarget, transactional_id: str) -> RemoteTransactionHome:
        target.part = _rest(target.id, transactional_id)
        return RemoteTransactionHome(self._router, at, target)

    async def init_producer(self, request: InitProducer) -> ProducerIdentity:
        if not request.transactional_id:
            raise TreecastError(Fault.INVALID_REQUEST, "a transactional id cannot be empty")
        return await self._router.route(
            home_name(request.transactional_id),
            lambda: self._local.init_producer(request),
            lambda at, target: self._there(at, target, request.transactional_id or "").init_producer(request),
        )

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> PartitionErrors:
        return await self._router.route(
            home_name(transactional_id),
            lambda: self._local.add_partitions(transactional_id, producer, partitions),
            lambda at, target: self._there(at, target, transactional_id).add_partitions(
                transactional_id, producer, partitions
            ),
        )

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        await self._router.route(
            home_name(transactional_id),
            lambda: self._local.add_offsets(transactional_id, producer, group_id),
            lambda at, target: self._there(at, target, transactional_id).add_offsets(
                transactional_id, producer, group_id
            ),
        )

    async def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        await self._router.route(
            home_name(transactional_id),
            lambda: self._local.end(transactional_id, producer, committed=committed),
            lambda at, target: self._there(at, target, transactional_id).end(
                transactional_id, producer, committed=committed
            ),
        )

    async def end_parts(
        self,
        whole: str,
        batch: int,
        parts: Mapping[str, ProducerIdentity],
        *,
        committed: bool,
        content: str = "",
    ) -> None:
        check_names(whole, batch, parts)
        await self._router.route(
            home_name(whole),
            lambda: self._local.end_parts(whole, batch, parts, committed=committed, content=content),
            lambda at, target: self._there(at, target, whole).end_parts(
                whole, batch, parts, committed=committed, content=content
            ),
        )

    async def _here(self, look: Callable[[], None]) -> None:
        look()

    # --- guards

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> Future[None] | None:
        """Whether `producer` may append to `partition` now: at once where the home is here.

        A partition that has an open transaction of the producer need not ask: the home ends it by a marker.
        """
        name = home_name(transactional_id)
        if name in self._keeper.owned:
            self._local.verify(transactional_id, producer, partition)
            return None
        return asyncio.ensure_future(
            self._router.route(
                name,
                lambda: self._here(lambda: self._local.verify(transactional_id, producer, partition)),
                lambda at, target: self._there(at, target, transactional_id).verify(producer, partition),
            )
        )

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Whether the open transaction of `producer` holds the group's offsets."""
        name = home_name(transactional_id)
        if name in self._keeper.owned:
            self._local.verify_offsets(transactional_id, producer, group_id)
            return None
        return self._router.route(
            name,
            lambda: self._here(lambda: self._local.verify_offsets(transactional_id, producer, group_id)),
            lambda at, target: self._there(at, target, transactional_id).verify_offsets(producer, group_id),
        )
