"""What a decision makes others do: leaders write markers, and homes of groups decide about offsets."""

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

# What says that a leader or another home cannot be reached now. The decision stands, and is carried out
# when it can.
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
    """What a coordinator needs of the cluster."""

    def partition(self, topic: str, index: int) -> PartitionLeader: ...

    def home(self, kind: Kind[T], id: str) -> T: ...


async def carry_out(owners: Owners, decided: Transaction, epoch: int, *, joined: bool) -> None:
    """Markers to all partitions, the decision to all groups. May be repeated.

    `epoch` is the home's. Raises the first refusal after all were tried. `joined`: leaders and homes may be
    other hosts, which are waited for only so long.
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
    """Waits for as long as it takes here, and for a while where it may be another host's to do."""
    if not joined:
        await deed
        return
    try:
        await asyncio.wait_for(asyncio.shield(deed), ELSEWHERE_SECONDS)
    except TimeoutError:
        raise TreecastError(Fault.TIMED_OUT, "a leader or a group's home does not answer") from None


def _is_gone(error: BaseException) -> bool:
    """A topic that was deleted needs no marker."""
    return isinstance(error, TreecastError) and error.fault is Fault.UNKNOWN_TOPIC
