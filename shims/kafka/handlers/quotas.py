"""DescribeClientQuotas and AlterClientQuotas: the quotas of the store of identities (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from treecast.middleware.broker.access import ANY, Content, Quota, Rate, check_quota
from treecast.middleware.model.errors import TreecastError

from .. import errors
from .. import versions as v
from .base import MOST_ROWS, TOO_MANY_ROWS, Context, Fields, Handler, Message, refuse_with_message

_USER: Final = "user"
_CLIENT: Final = "client-id"
_IP: Final = "ip"
_KINDS: Final = (_USER, _CLIENT, _IP)
_MOST_QUOTAS: Final = 10_000  # that there may be before one more is made here
_EXACT, _DEFAULT, _GIVEN = 0, 1, 2  # types of match
RATES: Final[Mapping[str, Rate]] = MappingProxyType(
    {
        "producer_byte_rate": Rate.PRODUCE,
        "consumer_byte_rate": Rate.FETCH,
        "request_rate": Rate.REQUESTS,  # Kafka counts a percentage of threads, which this broker has not
        "connection_creation_rate": Rate.CONNECTIONS,  # of an IP address (KIP-612)
    }
)
_KEYS: Final = {rate: key for key, rate in RATES.items()}


class _WrongQuotaError(ValueError):
    """An entry of a request is wrong."""


def describe_client_quotas(ctx: Context, request: Message) -> Fields:
    try:
        wanted = {one.entity_type: one for one in request.components}
        if any(kind not in _KINDS for kind in wanted):
            raise _WrongQuotaError(f"quotas are of {', '.join(_KINDS)}")
        if any(one.match_type not in (_EXACT, _DEFAULT, _GIVEN) for one in wanted.values()):
            raise _WrongQuotaError("the match type is 0, 1 or 2")
    except _WrongQuotaError as error:
        return {"error_code": errors.INVALID_REQUEST, "error_message": str(error), "entries": None}
    quotas = ctx.log_in.identities.content.quotas
    rows = [_row(quota) for quota in quotas if _fits(quota, wanted, strict=request.strict)]
    return {"error_code": errors.NONE, "error_message": None, "entries": rows}


def _named(quota: Quota) -> Iterator[tuple[str, str]]:
    if quota.user:
        yield _USER, quota.user
    if quota.client_id:
        yield _CLIENT, quota.client_id
    if quota.address:
        yield _IP, quota.address


def _fits(quota: Quota, wanted: Mapping[str, Message], *, strict: bool) -> bool:
    named = dict(_named(quota))
    if strict and named.keys() != wanted.keys():
        return False
    return all(kind in named and _matches(named[kind], one) for kind, one in wanted.items())


def _matches(name: str, asked: Message) -> bool:
    if asked.match_type == _GIVEN:
        return True
    return name == (ANY if asked.match_type == _DEFAULT else asked.match)


def _row(quota: Quota) -> Fields:
    entity = [
        {"entity_type": kind, "entity_name": None if name == ANY else name} for kind, name in _named(quota)
    ]
    values = [{"key": _KEYS[rate], "value": number} for rate, number in quota.rates.items()]
    return {"entity": entity, "values": values}


def alter_client_quotas(ctx: Context, request: Message) -> Fields:
    """Applies the entries that are right, all at once; each of the others gets its reason."""
    if len(request.entries) > MOST_ROWS:
        return _refuse_alter(request, errors.INVALID_REQUEST, TOO_MANY_ROWS)
    changes = _Changes(ctx.log_in.identities.content.quotas)
    read: list[tuple[int, str | None]] = []
    for entry in request.entries:
        try:
            read.append(changes.add(_place(entry.entity), _ops(entry.ops)))
        except _WrongQuotaError as error:
            read.append((errors.INVALID_REQUEST, str(error)))
    if changes.places and not request.validate_only:
        try:
            ctx.log_in.identities.change(changes)
        except TreecastError as error:
            read = [one if one[0] else (ctx.code(error), error.detail) for one in read]
    rows = [_altered(entry, *one) for entry, one in zip(request.entries, read, strict=True)]
    return {"entries": rows}


def _altered(entry: Message, code: int, detail: str | None) -> Fields:
    entity = [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity]
    return {"error_code": code, "error_message": detail, "entity": entity}


Key = tuple[str, str, str]  # of `Quota.key`


def _place(entity: Sequence[Message]) -> Key:
    named = {one.entity_type: ANY if one.entity_name is None else one.entity_name for one in entity}
    if (
        not named
        or len(named) != len(entity)
        or (named.keys() != {_IP} and not named.keys() <= {_USER, _CLIENT})
    ):
        raise _WrongQuotaError(f"a quota is of a {_USER}, a {_CLIENT}, or both, or of an {_IP}")
    if not all(named.values()):
        raise _WrongQuotaError("a name cannot be empty")
    return named.get(_USER, ""), named.get(_CLIENT, ""), named.get(_IP, "")


def _ops(ops: Sequence[Message]) -> dict[Rate, float | None]:
    """Returns the new rates; None removes one."""
    found: dict[Rate, float | None] = {}
    for one in ops:
        if one.key not in RATES:
            raise _WrongQuotaError(f"there is no quota {one.key}; known are {', '.join(RATES)}")
        if not one.remove and not 0 < one.value < float("inf"):
            raise _WrongQuotaError(f"{one.key} is above 0")
        found[RATES[one.key]] = None if one.remove else one.value
    return found


def _check(place: Key, ops: Mapping[Rate, float | None]) -> None:
    """Raises _WrongQuotaError for a rate that what a quota is for does not have."""
    given = {rate: number if number is not None else 1.0 for rate, number in ops.items()}
    try:
        check_quota(Quota(*place[:2], given, place[2]))
    except ValueError as error:
        raise _WrongQuotaError(str(error)) from None


class _Changes:
    """Sets and removes rates of places, in the order in which they were added, as one change of the store."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        """`quotas`: that there are."""
        self.places: list[tuple[Key, Mapping[Rate, float | None]]] = []
        self._known = {one.key for one in quotas}

    def add(self, place: Key, ops: Mapping[Rate, float | None]) -> tuple[int, None]:
        """Adds an entry. Returns its answer. Raises _WrongQuotaError."""
        if ops:
            _check(place, ops)
        if place not in self._known and any(number is not None for number in ops.values()):
            if len(self._known) >= _MOST_QUOTAS:
                raise _WrongQuotaError(f"there are {_MOST_QUOTAS} quotas: no more are made")
            self._known.add(place)
        self.places.append((place, ops))
        return errors.NONE, None

    def __call__(self, content: Content) -> Content:
        kept = {one.key: one for one in content.quotas}
        for place, ops in self.places:
            before = kept.pop(place, None)
            rates = {**(before.rates if before is not None else {}), **ops}
            left = {rate: number for rate, number in rates.items() if number is not None}
            if left:
                kept[place] = Quota(*place[:2], left, place[2])
        return msgspec.structs.replace(content, quotas=tuple(kept.values()))


def _refuse_alter(request: Message, code: int, detail: str) -> Fields:
    return {"entries": [_altered(entry, code, detail) for entry in request.entries]}


HANDLERS = {
    v.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas, refuse_with_message),
    v.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas, _refuse_alter),
}
