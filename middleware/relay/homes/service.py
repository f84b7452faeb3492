"""`HomeService`: the calls of other hosts to the homes that this host is."""

from __future__ import annotations

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.api.v1 import peer_homes_pb2 as pb
from treecast.middleware.broker.groups import GroupCoordinator
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.broker.transactions import TransactionCoordinator
from treecast.middleware.broker.transactions.parts import whole_of
from treecast.middleware.broker.values import NOBODY, InitProducer, MemberIdRequired
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError

from . import consumer_messages as c
from . import messages as m
from .finder import HomeFinder
from .keeper import HomeKeeper
from .methods import HomeMethod
from .ports import HomeAt
from .store import not_home

_NOTHING = b""


class HomeService:
    """`register` puts the handlers into the table of methods."""

    def __init__(
        self,
        host_id: int,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        keeper: HomeKeeper,
        finder: HomeFinder,
        counters: HomeCounters,
    ) -> None:
        self._host_id = host_id
        self._groups = groups
        self._transactions = transactions
        self._keeper = keeper
        self._finder = finder
        self._counters = counters

    def register(self, methods: Methods) -> None:
        method = HomeMethod
        methods.register(method.JOIN, pb.HomeJoin, self._join, cancellable=True)
        methods.register(method.SYNC, pb.HomeSync, self._sync, cancellable=True)
        methods.register(method.HEARTBEAT, pb.HomeHeartbeat, self._heartbeat)
        methods.register(method.LEAVE, pb.HomeLeave, self._leave)
        methods.register(method.CONSUMER_HEARTBEAT, pb.HomeConsumerHeartbeat, self._consumer_heartbeat)
        methods.register(method.COMMIT, pb.HomeCommit, self._commit)
        methods.register(method.FETCH, pb.HomeFetch, self._fetch)
        methods.register(method.DELETE_OFFSETS, pb.HomeDeleteOffsets, self._delete_offsets)
        methods.register(method.DESCRIBE, pb.HomeAsked, self._describe)
        methods.register(method.DELETE, pb.HomeAsked, self._delete)
        methods.register(method.ALTER_CONFIG, pb.HomeAlterConfig, self._alter_config)
        methods.register(method.END_OFFSETS, pb.HomeEndOffsets, self._end_offsets)
        methods.register(method.LIST, pb.HomeList, self._list)
        methods.register(method.INIT, pb.HomeInit, self._init)
        methods.register(method.ADD_PARTITIONS, pb.HomeAddPartitions, self._add_partitions)
        methods.register(method.ADD_OFFSETS, pb.HomeAddOffsets, self._add_offsets)
        methods.register(method.END, pb.HomeEnd, self._end)
        methods.register(method.END_PARTS, pb.HomeEndParts, self._end_parts)
        methods.register(method.VERIFY, pb.HomeVerify, self._verify)
        methods.register(method.LIST_TRANSACTIONS, pb.HomeListTransactions, self._list_transactions)

    async def _home(self, target: pb.HomeTarget, kind: HomeKind) -> str:
        """The id, where this host is its home in the epoch that is named; NOT_COORDINATOR where it is not.

        A caller that knows of a higher epoch may have heard of it before this host did.
        """
        self._counters.served += 1
        if target.kind != kind.value:
            raise TreecastError(Fault.INVALID_REQUEST, f"a home of kind {target.kind} in a call about others")
        name = HomeName(kind, target.id)
        if self._keeper.owned.get(name, 0) < target.epoch:
            at = self._finder.known(name)
            if at is None or at.epoch < target.epoch:
                at = await self._finder.ask(name)
            if at == HomeAt(self._host_id, target.epoch):
                await self._keeper.acquire(name, at.epoch)
        if self._keeper.owned.get(name) != target.epoch:
            self._counters.not_home += 1
            raise not_home(name)
        return target.id

    # --- groups

    async def _join(self, host: int, request: pb.HomeJoin, body: memoryview) -> tuple[pb.HomeJoined, bytes]:
        await self._home(request.home, HomeKind.GROUP)
        try:
            return m.joined(await self._groups.join(m.read_join(request))), _NOTHING
        except MemberIdRequired as required:
            return pb.HomeJoined(required_member_id=required.member_id), _NOTHING

    async def _sync(self, host: int, request: pb.HomeSync, body: memoryview) -> tuple[pb.HomeSynced, bytes]:
        await self._home(request.home, HomeKind.GROUP)
        return m.synced(await self._groups.sync(m.read_sync(request))), _NOTHING

    async def _heartbeat(
        self, host: int, request: pb.HomeHeartbeat, body: memoryview
    ) -> tuple[pb.HomeDone, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        await self._groups.heartbeat(group_id, m.read_member(request.member))
        return pb.HomeDone(), _NOTHING

    async def _leave(self, host: int, request: pb.HomeLeave, body: memoryview) -> tuple[pb.HomeLeft, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        answers = await self._groups.leave(group_id, [m.read_member(one) for one in request.members])
        return pb.HomeLeft(outcomes=[m.outcome(answer) for answer in answers]), _NOTHING

    async def _consumer_heartbeat(
        self, host: int, request: pb.HomeConsumerHeartbeat, body: memoryview
    ) -> tuple[pb.HomeConsumerAnswer, bytes]:
        await self._home(request.home, HomeKind.GROUP)
        answer = await self._groups.consumer_heartbeat(c.read_heartbeat(request))
        return c.answer(answer), _NOTHING

    async def _commit(
        self, host: int, request: pb.HomeCommit, body: memoryview
    ) -> tuple[pb.HomePartitionErrors, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        member, offsets = m.read_member(request.member), m.read_commits(request)
        if request.HasField("transactional_id"):
            refused = await self._groups.commit_transaction_offsets(
                group_id, member, request.transactional_id, m.read_producer(request.producer), offsets
            )
        else:
            refused = await self._groups.commit_offsets(group_id, member, offsets)
        return m.partition_errors(refused), _NOTHING

    async def _fetch(
        self, host: int, request: pb.HomeFetch, body: memoryview
    ) -> tuple[pb.HomeFetched, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        wanted = None if request.all else m.read_partitions(request.partitions)
        member = m.read_member(request.member) if request.HasField("member") else NOBODY
        found = await self._groups.fetch_offsets(
            group_id, wanted, require_stable=request.require_stable, member=member
        )
        return m.fetched(found), _NOTHING

    async def _delete_offsets(
        self, host: int, request: pb.HomeDeleteOffsets, body: memoryview
    ) -> tuple[pb.HomePartitionErrors, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        refused = await self._groups.delete_offsets(group_id, m.read_partitions(request.partitions))
        return m.partition_errors(refused), _NOTHING

    async def _describe(
        self, host: int, request: pb.HomeAsked, body: memoryview
    ) -> tuple[pb.HomeDescribed, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        return m.described(await self._groups.describe(group_id)), _NOTHING

    async def _delete(self, host: int, request: pb.HomeAsked, body: memoryview) -> tuple[pb.HomeDone, bytes]:
        await self._groups.delete(await self._home(request.home, HomeKind.GROUP))
        return pb.HomeDone(), _NOTHING

    async def _alter_config(
        self, host: int, request: pb.HomeAlterConfig, body: memoryview
    ) -> tuple[pb.HomeConfig, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        changes = c.read_changes(request.changes)
        after = await self._groups.alter_config(group_id, changes, validate_only=request.validate_only)
        return pb.HomeConfig(overrides=after), _NOTHING

    async def _end_offsets(
        self, host: int, request: pb.HomeEndOffsets, body: memoryview
    ) -> tuple[pb.HomeDone, bytes]:
        group_id = await self._home(request.home, HomeKind.GROUP)
        producer = m.read_producer(request.producer)
        await self._groups.end_transaction_offsets(group_id, producer, committed=request.committed)
        return pb.HomeDone(), _NOTHING

    async def _list(self, host: int, request: pb.HomeList, body: memoryview) -> tuple[pb.HomeListed, bytes]:
        self._counters.served += 1
        return m.listed(self._groups.list_groups()), _NOTHING

    # --- transactional ids

    async def _transactional_id(self, target: pb.HomeTarget) -> str:
        """The id that is meant: that of the home, or of a part of it. INVALID_REQUEST for what is no part."""
        whole = await self._home(target, HomeKind.TRANSACTION)
        if whole_of(whole + target.part) != whole:
            raise TreecastError(Fault.INVALID_REQUEST, f"{target.part!r} is no part of {whole!r}")
        return whole + target.part

    async def _list_transactions(
        self, host: int, request: pb.HomeListTransactions, body: memoryview
    ) -> tuple[pb.HomeTransactions, bytes]:
        self._counters.served += 1
        listings = self._transactions.list_transactions(None if request.all else request.ids)
        return m.transactions(listings), _NOTHING

    async def _init(self, host: int, request: pb.HomeInit, body: memoryview) -> tuple[pb.HomeProducer, bytes]:
        transactional_id = await self._transactional_id(request.home)
        known = m.read_producer(request.known)
        asked = InitProducer(transactional_id, request.transaction_timeout_ms, known)
        return m.producer(await self._transactions.init_producer(asked)), _NOTHING

    async def _add_partitions(
        self, host: int, request: pb.HomeAddPartitions, body: memoryview
    ) -> tuple[pb.HomePartitionErrors, bytes]:
        transactional_id = await self._transactional_id(request.home)
        refused = await self._transactions.add_partitions(
            transactional_id, m.read_producer(request.producer), m.read_partitions(request.partitions)
        )
        return m.partition_errors(refused), _NOTHING

    async def _add_offsets(
        self, host: int, request: pb.HomeAddOffsets, body: memoryview
    ) -> tuple[pb.HomeDone, bytes]:
        transactional_id = await self._transactional_id(request.home)
        producer = m.read_producer(request.producer)
        await self._transactions.add_offsets(transactional_id, producer, request.group_id)
        return pb.HomeDone(), _NOTHING

    async def _end(self, host: int, request: pb.HomeEnd, body: memoryview) -> tuple[pb.HomeDone, bytes]:
        transactional_id = await self._transactional_id(request.home)
        producer = m.read_producer(request.producer)
        await self._transactions.end(transactional_id, producer, committed=request.committed)
        return pb.HomeDone(), _NOTHING

    async def _end_parts(
        self, host: int, request: pb.HomeEndParts, body: memoryview
    ) -> tuple[pb.HomeDone, bytes]:
        whole = await self._home(request.home, HomeKind.TRANSACTION)
        parts = {whole + named.part: m.read_producer(named.producer) for named in request.parts}
        await self._transactions.end_parts(
            whole, request.batch, parts, committed=request.committed, content=request.content
        )
        return pb.HomeDone(), _NOTHING

    async def _verify(self, host: int, request: pb.HomeVerify, body: memoryview) -> tuple[pb.HomeDone, bytes]:
        transactional_id = await self._transactional_id(request.home)
        producer = m.read_producer(request.producer)
        if request.HasField("group_id"):
            self._transactions.verify_offsets(transactional_id, producer, request.group_id)
        else:
            self._transactions.verify(transactional_id, producer, m.read_partition(request.partition))
        return pb.HomeDone(), _NOTHING
