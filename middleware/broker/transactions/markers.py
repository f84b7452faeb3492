"""Effects of a decision: leaders write markers, and homes of groups decide about offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from treecast.middleware.broker.cluster import GROUPS, Kind, PartitionLeader
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from .state import Transaction

T = TypeVar("T")

ELSEWHERE_SECONDS = 10.0

# Faults of a leader or home that is unreachable for now. The decision stands and is carried out later.
ELSEWHERE = frozenset(
    {
        Fault.LEADER_UNAVAILABLE,
        Fault.NOT_LEADER,
        Fault.NOT_COORDINATOR,
        Fault.COORDINATOR_LOADING,
        Fault.COORDINATOR_UNAVAILABLE,
        Fault.TIMED_OUT,
    }
)


class Owners(Protocol):
    """The part of the cluster that a coordinator uses."""

    def partition(self, topic: str, index: int) -> PartitionLeader: ...

    def home(self, kind: Kind[T], id: str) -> T: ...


async def carry_out(owners: Owners, decided: Transaction, epoch: int, *, joined: bool) -> None:
    """Sends markers to all partitions and the decision to all groups. Idempotent.

    `epoch` is the home's. Tries all of them, then raises the first refusal. `joined`: leaders and homes may
    be other hosts; the wait for them is bounded.
    """
    pending = [
        *(
            _write_marker(owners, decided, partition, epoch, joined)
            for partition in sorted(decided.partitions)
        ),
        *(_decide_offsets(owners, decided, group, joined) for group in sorted(decided.groups)),
    ]
    failures = [
        result
        for result in await asyncio.gather(*pending, return_exceptions=True)
        if isinstance(result, BaseException) and not _is_gone(result)
    ]
    if failures:
        raise failures[0]


async def _write_marker(
    owners: Owners, decided: Transaction, partition: TopicPartition, epoch: int, joined: bool
) -> None:
    leader = owners.partition(partition.topic, partition.partition)
    waiting = leader.append_marker(decided.producer, committed=decided.committed, coordinator_epoch=epoch)
    if waiting is not None:
        await _bounded(waiting, joined)


def _decide_offsets(owners: Owners, decided: Transaction, group: str, joined: bool) -> Awaitable[None]:
    home = owners.home(GROUPS, group)
    deed = home.end_transaction_offsets(group, decided.producer, committed=decided.committed)
    return _bounded(deed, joined)


async def _bounded(deed: Awaitable[None], joined: bool) -> None:
    """Awaits `deed`; on a joined host for a bounded time."""
    if not joined:
        await deed
        return
    try:
        await asyncio.wait_for(asyncio.shield(deed), ELSEWHERE_SECONDS)
    except TimeoutError:
        raise TreecastError(Fault.TIMED_OUT, "no answer from a leader or a group's home") from None


def _is_gone(error: BaseException) -> bool:
    """Whether the topic was deleted, so that it needs no marker."""
    return isinstance(error, TreecastError) and error.fault is Fault.UNKNOWN_TOPIC
