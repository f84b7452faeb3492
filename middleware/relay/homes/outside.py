"""Groups and transactional ids whose owner is a system outside the cluster, beside which an agent runs.

The agent defines, for all hosts, which ids are the owner's: by patterns of names. Its host is then the home
of these ids, and the coordinator is not asked. The agent passes each call on to the owner.

    key   7:/kafka/<cluster id of the owner>
    value {"host": 7, "groups": ["*"], "transactional_ids": ["*"], "cluster": "..."}, JSON
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from treecast.middleware.api.entries import DefinitionEntry, HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.broker.values import GroupListing, TransactionListing
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.view import ClusterView

from .calls import (
    GROUPS,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    TRANSACTIONS,
    ListGroups,
    ListTransactions,
    Operation,
)
from .ports import HomeAt

PREFIX: Final = "7:/kafka/"  # among the keys of agents; no virtual host of AMQP is named so
_EPOCH: Final = 1 << 40  # above every epoch that the coordinator gives: the owner is never replaced by a host

_log = Log(__name__)


class Owner(Struct, frozen=True):
    """An agent defines this for all hosts. `topics`, `not_topics`: patterns of the topics that it follows."""

    host: int
    cluster: str
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    not_topics: tuple[str, ...] = ()

    def owns_group(self, id: str) -> bool:
        return _matches(id, self.groups)

    def owns(self, name: HomeName) -> bool:
        patterns = self.groups if name.kind is HomeKind.GROUP else self.transactional_ids
        return _matches(name.id, patterns)

    def follows(self, topic: str) -> bool:
        return _matches(topic, self.topics) and not _matches(topic, self.not_topics)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class OwnersElsewhere:
    """The owners that agents have defined, as the view has told."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._owners: dict[str, Owner] = {}
        for entry in view.definitions:
            self._changed(None, entry)
        view.definitions.subscribe(self._changed)

    def _changed(self, before: DefinitionEntry | None, after: DefinitionEntry | None) -> None:
        entry = after or before
        if entry is None or not entry.key.startswith(PREFIX):
            return
        self._owners.pop(entry.key, None)
        if after is None:
            return
        try:
            self._owners[after.key] = msgspec.json.decode(after.value, type=Owner)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _log.error("what an agent defined cannot be read", key=after.key, error=error)

    def owners(self) -> list[Owner]:
        """Returns the owners whose agent's host is still known to the cluster."""
        return [one for one in self._owners.values() if self._view.host(one.host) is not None]

    def home(self, name: HomeName) -> HomeAt | None:
        """Returns the agent's host, if the id is an owner's."""
        for owner in self.owners():
            if owner.owns(name):
                return HomeAt(owner.host, _EPOCH)
        return None


class OwnerHomes(Protocol):
    """An agent answers with these: the owner's groups and transactional ids."""

    @property
    def groups(self) -> object:
        """Implements `broker.cluster.GroupHome`."""

    @property
    def transactions(self) -> object:
        """Implements `calls.TransactionCalls`."""

    async def list_groups(self) -> list[GroupListing]: ...

    async def list_transactions(self, ids: Sequence[str] | None) -> list[TransactionListing]: ...


def register_homes(methods: Methods, homes: OwnerHomes) -> None:
    """Serves the calls of other hosts to homes with an owner's answers."""
    for calls, owner in ((GROUPS, homes.groups), (TRANSACTIONS, homes.transactions)):
        for operation in calls.operations:
            answer = partial(_answer, operation, owner)
            methods.register(operation.method, answer, cancellable=operation.row.cancellable)
    methods.register(LIST_GROUPS, partial(_list_groups, homes))
    methods.register(LIST_TRANSACTIONS, partial(_list_transactions, homes))


async def _answer(
    operation: Operation, owner: object, host: int, request: Any, body: memoryview
) -> tuple[Any, bytes]:
    return await operation.done(owner, request), b""


async def _list_groups(
    homes: OwnerHomes, host: int, request: ListGroups, body: memoryview
) -> tuple[list[GroupListing], bytes]:
    return await homes.list_groups(), b""


async def _list_transactions(
    homes: OwnerHomes, host: int, request: ListTransactions, body: memoryview
) -> tuple[list[TransactionListing], bytes]:
    return await homes.list_transactions(request.ids), b""
