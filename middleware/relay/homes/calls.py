"""Calls to homes: the broker's own Protocols, from one host to another.

The Protocols of homes are defined once, in `broker.cluster`. The tables here give each method of such a
Protocol its number on the channel. Parameters form the request and the result forms the response, as msgpack
(`fabric.channel.dispatch`). The caller's end (`routed`) and the home's end (`HomeService`) are derived from
the tables, so a home of another kind, for instance a queue, needs one more table.

A request is an array: the epoch in which the caller knows the home, then the parameters in order. A new
parameter goes last and has a default; hosts that do not know it leave it out.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.cluster import GroupHome, TransactionHome
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.broker.transactions.parts import check_names, home_name
from treecast.middleware.broker.values import (
    ConfigChange,
    GroupDescription,
    GroupListing,
    InitProducer,
    JoinGroup,
    MemberIdRequired,
    TransactionListing,
)
from treecast.middleware.fabric.channel import Method, Methods
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from .finder import HomeFinder
from .keeper import HomeKeeper
from .ports import HomeAt
from .router import HomeRouter
from .store import not_home

P = TypeVar("P")

CALL_SECONDS = 5.0
LONG_SECONDS = 30.0  # an end waits for leaders and groups' homes, at most 10 s for each
_GRACE = 30.0  # s that a home may exceed the member's time-out
_SYNC_SECONDS = 300.0  # the leader's time to assign; Kafka's clients set no limit


class Row(Struct, frozen=True):
    """One method of a Protocol. `number`: its number on the channel; homes use 80-99 and 102-119.

    `named` returns the id of a call from its first argument. `seconds`: the caller's time-out. `check`
    refuses invalid arguments before the call. `unhomed` returns the answer if no host is the home, so that
    the call creates none; if it returns None, the call looks for a home. `member_id`: a refusal may carry a
    member id.
    """

    number: int
    named: Callable[[Any], str] = str
    seconds: float | Callable[..., float] = CALL_SECONDS
    cancellable: bool = False
    check: Callable[..., None] | None = None
    unhomed: Callable[..., Any] | None = None
    member_id: bool = False


class Operation:
    """A method of a Protocol as a call."""

    def __init__(self, of: type, name: str, row: Row, home: Callable[[str], HomeName]) -> None:
        function = getattr(of, name)
        hints = typing.get_type_hints(function)
        self.name = name
        self.row = row
        self._signature = inspect.signature(function)
        self._home = home
        found, self._split = _on_the_wire(_awaited(hints["return"]))
        answer: Any = found | str if row.member_id else found
        fields: list[Any] = [("epoch", int)]
        for parameter in list(self._signature.parameters.values())[1:]:
            field = (parameter.name, hints[parameter.name])
            fields.append(field if parameter.default is parameter.empty else (*field, parameter.default))
        self._names = [field[0] for field in fields[1:]]
        self._keywords = {
            parameter.name
            for parameter in self._signature.parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        request = msgspec.defstruct(f"{of.__name__}.{name}", fields, array_like=True, frozen=True)
        self.method: Method[Any, Any] = Method(row.number, request, answer)

    # --- the caller's end

    def home(self, arguments: Sequence[Any]) -> HomeName:
        return self._home(self.row.named(arguments[0]))

    def seconds(self, *arguments: Any, **named: Any) -> float:
        seconds = self.row.seconds
        return seconds(*arguments, **named) if callable(seconds) else seconds

    def request(self, epoch: int, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        bound = self._signature.bind(None, *arguments, **named).arguments
        bound.pop("self")
        return self.method.request(epoch, **bound)

    def answered(self, answer: Any) -> Any:
        if self.row.member_id and isinstance(answer, str):
            raise MemberIdRequired(answer)
        return {**answer[0], **answer[1]} if self._split else answer

    # --- the home's end

    async def done(self, owner: object, request: Any) -> Any:
        """Runs the operation and returns the answer in its wire form."""
        given = {name: getattr(request, name) for name in self._names}
        named = {name: given.pop(name) for name in self._keywords}
        # Once more at the home: the caller's version may check less.
        if self.row.check is not None:
            self.row.check(*given.values(), **named)
        try:
            found = getattr(owner, self.name)(*given.values(), **named)
            if inspect.isawaitable(found):
                found = await found
        except MemberIdRequired as required:
            return required.member_id
        return _parted(found) if self._split else found

    def asked_for(self, request: Any) -> HomeName:
        return self.home([getattr(request, self._names[0])])


class HomeCalls(Generic[P]):
    """The Protocol of one kind of home, as calls."""

    def __init__(self, of: type[P], home: Callable[[str], HomeName], rows: Mapping[str, Row]) -> None:
        self.operations = [Operation(of, name, row, home) for name, row in rows.items()]
        self._of = of

    def routed(self, router: HomeRouter, finder: HomeFinder, local: P) -> P:
        """Returns an implementation of the Protocol for all ids. `local` serves the homes of this host."""
        route = partial(_route, router, finder, local)
        methods = {one.name: _method(route, one) for one in self.operations}
        return cast(P, type(f"Routed{self._of.__name__}", (), methods)())


def _method(route: Callable[..., Awaitable[Any]], operation: Operation) -> Callable[..., Awaitable[Any]]:
    def call(self: object, *arguments: Any, **named: Any) -> Awaitable[Any]:
        return route(operation, arguments, named)

    return call


async def _route(
    router: HomeRouter,
    finder: HomeFinder,
    local: object,
    operation: Operation,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    row = operation.row
    if row.check is not None:
        row.check(*arguments, **named)
    name = operation.home(arguments)
    if row.unhomed is not None and finder.known(name) is None:
        answer = row.unhomed(*arguments, **named)
        if answer is not None:
            return answer

    async def here() -> Any:
        found = getattr(local, operation.name)(*arguments, **named)
        return await found if inspect.isawaitable(found) else found

    async def there(at: HomeAt) -> Any:
        request = operation.request(at.epoch, arguments, named)
        seconds = operation.seconds(*arguments, **named)
        return operation.answered(await router.call(at, operation.method, request, seconds))

    return await router.route(name, here, there)


class HomeService:
    """Serves calls of other hosts to the homes of this host."""

    def __init__(
        self, host_id: int, keeper: HomeKeeper, finder: HomeFinder, methods: Methods, counters: HomeCounters
    ) -> None:
        self._host_id = host_id
        self._keeper = keeper
        self._finder = finder
        self._methods = methods
        self._counters = counters

    def serve(self, calls: HomeCalls[P], local: P) -> None:
        for operation in calls.operations:
            answer = partial(self._answer, operation, local)
            self._methods.register(operation.method, answer, cancellable=operation.row.cancellable)

    async def _answer(
        self, operation: Operation, local: object, host: int, request: Any, body: memoryview
    ) -> tuple[Any, bytes]:
        await self._be_home(operation.asked_for(request), request.epoch)
        return await operation.done(local, request), b""

    async def _be_home(self, name: HomeName, epoch: int) -> None:
        """Raises NOT_COORDINATOR unless this host is the home in `epoch`.

        A caller with a higher epoch may have learnt of it before this host did, so this host asks again.
        """
        self._counters.served += 1
        if self._keeper.owned.get(name, 0) < epoch:
            at = self._finder.known(name)
            if at is None or at.epoch < epoch:
                at = await self._finder.ask(name)
            if at == HomeAt(self._host_id, epoch):
                await self._keeper.acquire(name, at.epoch)
        if self._keeper.owned.get(name) != epoch:
            self._counters.not_home += 1
            raise not_home(name)


# --- wire forms of answers


def _awaited(hint: Any) -> Any:
    """Returns T of `Awaitable[T]` or `Awaitable[T] | None`."""
    if typing.get_origin(hint) is types.UnionType:
        return _awaited(typing.get_args(hint)[0])
    return typing.get_args(hint)[0]


def _on_the_wire(hint: Any) -> tuple[Any, bool]:
    """Returns the wire type, and whether errors travel in a mapping of their own: msgspec cannot tell values
    from errors in one mapping."""
    if typing.get_origin(hint) is not None and issubclass(typing.get_origin(hint), Mapping):
        key, value = typing.get_args(hint)
        parts = typing.get_args(value) if isinstance(value, types.UnionType) else ()
        if TreecastError in parts:
            found = next(part for part in parts if part is not TreecastError)
            return tuple[dict[key, found], dict[key, TreecastError]], True  # type: ignore[valid-type]
    return hint, False


def _parted(found: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    refused = {key: value for key, value in found.items() if isinstance(value, TreecastError)}
    return {key: value for key, value in found.items() if key not in refused}, refused


# --- groups


def _group(group_id: str) -> HomeName:
    return HomeName(HomeKind.GROUP, group_id)


def _of_request(request: Any) -> str:
    return cast(str, request.group_id)


def _join_seconds(request: JoinGroup) -> float:
    """Returns the time-out of a join: the duration of a rebalance."""
    return max(request.rebalance_timeout_ms, request.session_timeout_ms) / 1000 + _GRACE


def _dead(group_id: str) -> GroupDescription:
    return GroupDescription(group_id, State.DEAD.value, "", "", ())


def _no_settings(
    group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> Mapping[str, str] | None:
    return None if changes else {}


GROUPS = HomeCalls(
    GroupHome,  # type: ignore[type-abstract]
    _group,
    {
        "join": Row(80, _of_request, _join_seconds, cancellable=True, member_id=True),
        "sync": Row(81, _of_request, _SYNC_SECONDS, cancellable=True),
        "heartbeat": Row(82),
        "leave": Row(83),
        "commit_offsets": Row(84),
        "fetch_offsets": Row(85),
        "delete_offsets": Row(86),
        "describe": Row(87, unhomed=_dead),
        "delete": Row(88),
        "end_transaction_offsets": Row(89),
        "consumer_heartbeat": Row(98, _of_request),
        "alter_config": Row(99, unhomed=_no_settings),
        "commit_transaction_offsets": Row(102),
    },
)


# --- transactional ids


class TransactionCalls(TransactionHome, Protocol):
    """A home of transactional ids, with the checks for partitions and groups (KIP-890)."""

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> Awaitable[None] | None:
        """Checks that an open transaction of `producer` includes the partition."""

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Checks that an open transaction of `producer` includes the group's offsets."""


def _of_producer(request: InitProducer) -> str:
    return request.transactional_id or ""


def _check_init(request: InitProducer) -> None:
    if not request.transactional_id:
        raise TreecastError(Fault.INVALID_REQUEST, "a transactional id cannot be empty")


def _check_parts(whole: str, batch: int, parts: Mapping[str, ProducerIdentity], **named: Any) -> None:
    check_names(whole, batch, parts)


TRANSACTIONS = HomeCalls(
    TransactionCalls,  # type: ignore[type-abstract]
    home_name,
    {
        "init_producer": Row(91, _of_producer, LONG_SECONDS, check=_check_init),
        "add_partitions": Row(92),
        "add_offsets": Row(93),
        "end": Row(94, seconds=LONG_SECONDS),
        "verify": Row(95),
        "end_parts": Row(96, seconds=LONG_SECONDS, check=_check_parts),
        "verify_offsets": Row(103),
    },
)


# --- calls about all homes of a host


class ListGroups(Struct, frozen=True, array_like=True):
    """Lists the groups whose home is the called host."""


class ListTransactions(Struct, frozen=True, array_like=True):
    """Lists the transactional ids whose home is the called host; only those in `ids`, if given."""

    ids: tuple[str, ...] | None = None


LIST_GROUPS = Method(90, ListGroups, list[GroupListing])
LIST_TRANSACTIONS = Method(97, ListTransactions, list[TransactionListing])
