"""FieldMatch and Action messages to the switch's values and back, with the specification's checks (9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    ExactMatch,
    LpmMatch,
    Match,
    Matches,
    OptionalMatch,
    RangeMatch,
    TernaryMatch,
)

from .bytestrings import decode, encode
from .errors import invalid
from .schema import Field, MatchKind, Schema

_KIND_OF = {
    "exact": MatchKind.EXACT,
    "lpm": MatchKind.LPM,
    "ternary": MatchKind.TERNARY,
    "range": MatchKind.RANGE,
    "optional": MatchKind.OPTIONAL,
}


def matches_from(fields: Mapping[int, Field], sent: Iterable[p4r.FieldMatch], what: str) -> Matches:
    """Returns the matches of an entry or a value set's member. Raises INVALID_ARGUMENT for an invalid
    message.
    """
    found: Matches = {}
    for message in sent:
        field = fields.get(message.field_id)
        if field is None:
            raise invalid(f"{what} has no match field {message.field_id}")
        if field.name in found:
            raise invalid(f"{what}: match field {field.name} comes twice")
        found[field.name] = _match_from(field, message, f"{what}, {field.name}")
    for field in fields.values():
        if field.kind is MatchKind.EXACT and field.name not in found:
            raise invalid(f"{what}: the exact match field {field.name} is missing")
    return found


def _match_from(field: Field, message: p4r.FieldMatch, what: str) -> Match:
    kind = message.WhichOneof("field_match_type") or "nothing"
    if _KIND_OF.get(kind) is not field.kind:
        raise invalid(f"{what} is matched by {field.kind.name.lower()}, not by {kind}")
    if field.kind is MatchKind.EXACT:
        return ExactMatch(field.number(message.exact.value, what))
    if field.kind is MatchKind.OPTIONAL:
        return OptionalMatch(field.number(message.optional.value, what))
    if field.translated:
        raise invalid(f"{what}: strings are matched exactly, or left out")
    if field.kind is MatchKind.LPM:
        return _lpm(field, message.lpm, what)
    if field.kind is MatchKind.TERNARY:
        return _ternary(field, message.ternary, what)
    return _range(field, message.range, what)


def _lpm(field: Field, sent: p4r.FieldMatch.LPM, what: str) -> LpmMatch:
    value = decode(sent.value, field.width, what)
    if not 0 < sent.prefix_len <= field.width:
        raise invalid(
            f"{what}: a prefix has 1 to {field.width} bits; leave the field out to match everything"
        )
    if value & ((1 << field.width - sent.prefix_len) - 1):
        raise invalid(f"{what}: {value:#x} has bits past its prefix of {sent.prefix_len}")
    return LpmMatch(value, sent.prefix_len)


def _ternary(field: Field, sent: p4r.FieldMatch.Ternary, what: str) -> TernaryMatch:
    value, mask = decode(sent.value, field.width, what), decode(sent.mask, field.width, f"{what}, mask")
    if not mask:
        raise invalid(f"{what}: the mask is 0; leave the field out to match everything")
    if value & ~mask:
        raise invalid(f"{what}: {value:#x} has bits outside its mask {mask:#x}")
    return TernaryMatch(value, mask)


def _range(field: Field, sent: p4r.FieldMatch.Range, what: str) -> RangeMatch:
    low, high = decode(sent.low, field.width, what), decode(sent.high, field.width, what)
    if low > high:
        raise invalid(f"{what}: the range ends at {high:#x}, before it begins at {low:#x}")
    if low == 0 and high == (1 << field.width) - 1:
        raise invalid(f"{what}: the range is everything; leave the field out instead")
    return RangeMatch(low, high)


def matches_to(fields: Mapping[int, Field], matches: Matches) -> list[p4r.FieldMatch]:
    """Returns the messages, in the order of the fields; those that match everything are left out."""
    found = []
    for field in fields.values():
        match = matches.get(field.name)
        if match is not None and not _is_wildcard(field, match):
            found.append(_match_to(field, match))
    return found


def _is_wildcard(field: Field, match: Match) -> bool:
    if isinstance(match, LpmMatch):
        return not match.prefix
    if isinstance(match, TernaryMatch):
        return not match.mask
    return isinstance(match, RangeMatch) and match.low == 0 and match.high == (1 << field.width) - 1


def _match_to(field: Field, match: Match) -> p4r.FieldMatch:
    message = p4r.FieldMatch(field_id=field.id)
    if isinstance(match, ExactMatch):
        message.exact.value = field.data(match.value)
    elif isinstance(match, LpmMatch):
        message.lpm.value, message.lpm.prefix_len = encode(match.value), match.prefix
    elif isinstance(match, TernaryMatch):
        message.ternary.value, message.ternary.mask = encode(match.value), encode(match.mask)
    elif isinstance(match, RangeMatch):
        message.range.low, message.range.high = encode(match.low), encode(match.high)
    else:
        message.optional.value = field.data(match.value)
    return message


def call_from(schema: Schema, sent: p4r.Action, what: str) -> ActionCall:
    """Returns an action with its arguments; each parameter comes exactly once."""
    action = schema.actions.find(sent.action_id)
    arguments: dict[str, int] = {}
    for param in sent.params:
        field = action.params.get(param.param_id)
        if field is None:
            raise invalid(f"{what}: action {action.name} has no parameter {param.param_id}")
        if field.name in arguments:
            raise invalid(f"{what}: parameter {field.name} of {action.name} comes twice")
        arguments[field.name] = field.number(param.value, f"{what}, {action.name}, {field.name}")
    missing = [field.name for field in action.params.values() if field.name not in arguments]
    if missing:
        raise invalid(f"{what}: action {action.name} lacks {', '.join(missing)}")
    return ActionCall(action.name, arguments)


def call_to(schema: Schema, call: ActionCall) -> p4r.Action:
    """Returns the message, parameters in their order."""
    action = schema.actions.names[call.action]
    params = [
        p4r.Action.Param(param_id=field.id, value=field.data(call.arguments[field.name]))
        for field in action.params.values()
    ]
    return p4r.Action(action_id=action.id, params=params)
