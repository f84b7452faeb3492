"""`RoutedGroups`: consumer groups wherever their homes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.api.v1 import peer_homes_pb2 as pb
from treecast.middleware.broker.cluster import GroupHome
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.broker.values import (
    NOBODY,
    CommittedOffset,
    ConfigChange,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupDescription,
    Joined,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    OffsetCommits,
    PartitionErrors,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from . import consumer_messages as c
from . import messages as m
from .finder import HomeFinder
from .methods import HomeMethod
from .ports import HomeAt
from .router import HomeRouter

_GRACE = 30.0  # s that a home may take beyond the time that a member asked for


def _group(group_id: str) -> HomeName:
    return HomeName(HomeKind.GROUP, group_id)


class RemoteGroupHome:
    """Implements `cluster.GroupHome` for one group, whose home is the host `at`, by calls to it."""

    def __init__(self, router: HomeRouter, at: HomeAt, target: pb.HomeTarget) -> None:
        self._router = router
        self._at = at
        self._target = target

    async def join(self, request: JoinGroup) -> Joined:
        """May take as long as a rebalance. Cancelled, it is cancelled at the home too."""
        seconds = max(request.rebalance_timeout_ms, request.session_timeout_ms) / 1000 + _GRACE
        message = m.join(self._target, request)
        answer = await self._router.call(self._at, HomeMethod.JOIN, message, pb.HomeJoined, seconds)
        if answer.required_member_id:
            raise MemberIdRequired(answer.required_member_id)
        return m.read_joined(answer)

    async def sync(self, request: SyncGroup) -> Synced:
        """May take as long as the leader has to assign, and Kafka's clients set no time for that."""
        message = m.sync(self._target, request)
        answer = await self._router.call(self._at, HomeMethod.SYNC, message, pb.HomeSynced, 10 * _GRACE)
        return m.read_synced(answer)

    async def heartbeat(self, group_id: str, member: MemberIdentity) -> None:
        message = pb.HomeHeartbeat(home=self._target, member=m.member(member))
        await self._router.call(self._at, HomeMethod.HEARTBEAT, message, pb.HomeDone)

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        message = c.heartbeat(self._target, request)
        answer = await self._router.call(
            self._at, HomeMethod.CONSUMER_HEARTBEAT, message, pb.HomeConsumerAnswer
        )
        return c.read_answer(answer)

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Sequence[TreecastError | None]:
        message = pb.HomeLeave(home=self._target, members=[m.member(member) for member in members])
        answer = await self._router.call(self._at, HomeMethod.LEAVE, message, pb.HomeLeft)
        return [m.read_outcome(outcome) for outcome in answer.outcomes]

    async def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> PartitionErrors:
        return await self._commit(m.commit(self._target, member, offsets))

    async def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> PartitionErrors:
        return await self._commit(m.commit(self._target, member, offsets, transactional_id, producer))

    async def _commit(self, message: pb.HomeCommit) -> PartitionErrors:
        answer = await self._router.call(self._at, HomeMethod.COMMIT, message, pb.HomePartitionErrors)
        return m.read_partition_errors(answer)

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Mapping[TopicPartition, CommittedOffset | TreecastError]:
        message = m.fetch(self._target, partitions, member, require_stable=require_stable)
        return m.read_fetched(await self._router.call(self._at, HomeMethod.FETCH, message, pb.HomeFetched))

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> PartitionErrors:
        message = pb.HomeDeleteOffsets(home=self._target, partitions=m.partitions(partitions))
        answer = await self._router.call(self._at, HomeMethod.DELETE_OFFSETS, message, pb.HomePartitionErrors)
        return m.read_partition_errors(answer)

    async def describe(self, group_id: str) -> GroupDescription:
        message = pb.HomeAsked(home=self._target)
        answer = await self._router.call(self._at, HomeMethod.DESCRIBE, message, pb.HomeDescribed)
        return m.read_described(group_id, answer)

    async def delete(self, group_id: str) -> None:
        await self._router.call(self._at, HomeMethod.DELETE, pb.HomeAsked(home=self._target), pb.HomeDone)

    async def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Mapping[str, str]:
        message = c.alter_config(self._target, changes, validate_only=validate_only)
        answer = await self._router.call(self._at, HomeMethod.ALTER_CONFIG, message, pb.HomeConfig)
        return dict(answer.overrides)

    async def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> None:
        message = pb.HomeEndOffsets(home=self._target, producer=m.producer(producer), committed=committed)
        await self._router.call(self._at, HomeMethod.END_OFFSETS, message, pb.HomeDone)


class RoutedGroups:
    """Implements `cluster.GroupHome` for every group: the local coordinator where this host is the home."""

    def __init__(self, router: HomeRouter, finder: HomeFinder, local: GroupHome) -> None:
        self._router = router
        self._finder = finder
        self._local = local

    def _there(self, at: HomeAt, target: pb.HomeTarget) -> RemoteGroupHome:
        return RemoteGroupHome(self._router, at, target)

    async def join(self, request: JoinGroup) -> Joined:
        return await self._router.route(
            _group(request.group_id),
            lambda: self._local.join(request),
            lambda at, target: self._there(at, target).join(request),
        )

    async def sync(self, request: SyncGroup) -> Synced:
        return await self._router.route(
            _group(request.group_id),
            lambda: self._local.sync(request),
            lambda at, target: self._there(at, target).sync(request),
        )

    async def heartbeat(self, group_id: str, member: MemberIdentity) -> None:
        await self._router.route(
            _group(group_id),
            lambda: self._local.heartbeat(group_id, member),
            lambda at, target: self._there(at, target).heartbeat(group_id, member),
        )

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        return await self._router.route(
            _group(request.group_id),
            lambda: self._local.consumer_heartbeat(request),
            lambda at, target: self._there(at, target).consumer_heartbeat(request),
        )

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Sequence[TreecastError | None]:
        return await self._router.route(
            _group(group_id),
            lambda: self._local.leave(group_id, members),
            lambda at, target: self._there(at, target).leave(group_id, members),
        )

    async def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> PartitionErrors:
        return await self._router.route(
            _group(group_id),
            lambda: self._local.commit_offsets(group_id, member, offsets),
            lambda at, target: self._there(at, target).commit_offsets(group_id, member, offsets),
        )

    async def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> PartitionErrors:
        return await self._router.route(
            _group(group_id),
            lambda: self._local.commit_transaction_offsets(
                group_id, member, transactional_id, producer, offsets
            ),
            lambda at, target: self._there(at, target).commit_transaction_offsets(
                group_id, member, transactional_id, producer, offsets
            ),
        )

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Mapping[TopicPartition, CommittedOffset | TreecastError]:
        return await self._router.route(
            _group(group_id),
            lambda: self._local.fetch_offsets(
                group_id, partitions, require_stable=require_stable, member=member
            ),
            lambda at, target: self._there(at, target).fetch_offsets(
                group_id, partitions, require_stable=require_stable, member=member
            ),
        )

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> PartitionErrors:
        return await self._router.route(
            _group(group_id),
            lambda: self._local.delete_offsets(group_id, partitions),
            lambda at, target: self._there(at, target).delete_offsets(group_id, partitions),
        )

    async def describe(self, group_id: str) -> GroupDescription:
        """A group that has no home is described as Dead, and gets none by that."""
        if self._finder.known(_group(group_id)) is None:
            return GroupDescription(group_id, State.DEAD.value, "", "", ())
        return await self._router.route(
            _group(group_id),
            lambda: self._local.describe(group_id),
            lambda at, target: self._there(at, target).describe(group_id),
        )

    async def delete(self, group_id: str) -> None:
        await self._router.route(
            _group(group_id),
            lambda: self._local.delete(group_id),
            lambda at, target: self._there(at, target).delete(group_id),
        )

    async def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """A group that has no home has no settings, and gets no home by being asked for them."""
        if not changes and self._finder.known(_group(group_id)) is None:
            return {}
        return await self._router.route(
            _group(group_id),
            lambda: self._local.alter_config(group_id, changes, validate_only=validate_only),
            lambda at, target: self._there(at, target).alter_config(
                group_id, changes, validate_only=validate_only
            ),
        )

    async def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> None:
        await self._router.route(
            _group(group_id),
            lambda: self._local.end_transaction_offsets(group_id, producer, committed=committed),
            lambda at, target: self._there(at, target).end_transaction_offsets(
                group_id, producer, committed=committed
            ),
        )
