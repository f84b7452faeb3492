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
from .base import Context, Fields, Handler, Message, refuse_with_message

_USER: Final = "user"
_CLIENT: Final = "client-id"
_IP: Final = "ip"
_KINDS: Final = (_USER, _CLIENT, _IP)
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
    """Applies each entry that is right; the others get their reason."""
    rows = []
    for entry in request.entries:
        code, detail = errors.NONE, None
        try:
            place, ops = _place(entry.entity), _ops(entry.ops)
            _check(place, ops)
            if not request.validate_only:
                ctx.log_in.identities.change(_Change(place, ops))
        except _WrongQuotaError as error:
            code, detail = errors.INVALID_REQUEST, str(error)
        except TreecastError as error:
            code, detail = errors.code_for(error, ctx.key, ctx.version), error.detail
        entity = [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity]
        rows.append({"error_code": code, "error_message": detail, "entity": entity})
    return {"entries": rows}


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


class _Change:
    """Sets and removes rates of one place."""

    def __init__(self, place: Key, ops: Mapping[Rate, float | None]) -> None:
        self._place = place
        self._ops = ops

    def __call__(self, content: Content) -> Content:
        kept = {one.key: one for one in content.quotas}
        before = kept.pop(self._place, None)
        rates = {**(before.rates if before is not None else {}), **self._ops}
        left = {rate: number for rate, number in rates.items() if number is not None}
        if left:
            kept[self._place] = Quota(*self._place[:2], left, self._place[2])
        return msgspec.structs.replace(content, quotas=tuple(kept.values()))


def _refuse_alter(request: Message, code: int, detail: str) -> Fields:
    rows = [
        {
            "error_code": code,
            "error_message": detail,
            "entity": [
                {"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity
            ],
        }
        for entry in request.entries
    ]
    return {"entries": rows}


HANDLERS = {
    v.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas, refuse_with_message),
    v.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas, _refuse_alter),
}
