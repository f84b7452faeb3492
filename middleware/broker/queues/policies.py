"""Policies: settings for the queues and exchanges whose names match a pattern.

A policy has a definition, a priority, and a kind that it applies to. Of all policies that match, the one with
the highest priority counts. The matching operator policy is merged into it, and the result into the arguments
of the declaration. If two of them set a number, the lower one counts. Names, rules and refusals follow
RabbitMQ 4.3 (rabbit_policy, rabbit_policies, rabbit_queue_type_util), for the settings in `SETTINGS`.

Patterns are matched in linear time (`model.regex`), in PCRE's syntax as with RabbitMQ, without what cannot be
matched so: back references, atomic groups, possessive quantifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.model.regex import Known, Regex
from treecast.middleware.model.regex_syntax import Dialect, InvalidRegex
from treecast.middleware.wire.field_table import same

from .arguments import QueueType
from .refusals import LONGEST_NAME, Reason, Refusal, text
from .stream_start import age_of

Definition = Mapping[str, object]
_PATTERNS: Final = Known()


class Policy(Struct, frozen=True):
    """One policy. `apply_to`: all, exchanges, queues, classic_queues, quorum_queues or streams."""

    name: str
    pattern: str
    definition: Definition
    priority: int = 0
    apply_to: str = "all"

    @property
    def said(self) -> dict[str, object]:
        """The policy without its name, with RabbitMQ's keys."""
        return {
            "pattern": self.pattern,
            "definition": dict(self.definition),
            "priority": self.priority,
            "apply-to": self.apply_to,
        }


# --- allowed settings


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    return _is_count(value) and value != 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value.encode(errors="replace")) <= LONGEST_NAME


def _is_one_of(*known: object) -> Callable[[object], bool]:
    return lambda value: any(same(value, one) for one in known)


def is_age(value: object) -> bool:
    """Whether `value` is a duration in the format of streams: a number and one of Y, M, D, h, m and s."""
    try:
        return isinstance(value, str) and age_of(value) >= 0
    except ValueError:
        return False


class Setting(Struct, frozen=True):
    """The allowed values of one key of a definition; `what` describes them in the refusal. `types`: the queue
    types that know the key.
    """

    fits: Callable[[object], bool]
    what: str
    types: frozenset[QueueType]
    operator: bool = False


_CLASSIC: Final = frozenset({QueueType.CLASSIC})
_QUORUM: Final = frozenset({QueueType.QUORUM})
_STREAM: Final = frozenset({QueueType.STREAM})
_BOTH: Final = _CLASSIC | _QUORUM
_ALL: Final = _BOTH | _STREAM
_OVERFLOWS: Final = _is_one_of("drop-head", "reject-publish", "reject-publish-dlx")

SETTINGS: Final = {
    "alternate-exchange": Setting(_is_name, "alternate exchange name", _ALL),
    "dead-letter-exchange": Setting(_is_name, "dead letter exchange name", _BOTH),
    "dead-letter-routing-key": Setting(_is_name, "dead letter routing key", _BOTH),
    "dead-letter-strategy": Setting(
        _is_one_of("at-most-once", "at-least-once"), "dead letter strategy", _QUORUM
    ),
    "message-ttl": Setting(_is_count, "message TTL", _BOTH, True),
    "expires": Setting(_is_positive, "queue expiry", _BOTH, True),
    "max-length": Setting(_is_count, "maximum length", _BOTH, True),
    "max-length-bytes": Setting(_is_count, "maximum length in bytes", _ALL, True),
    "max-in-memory-length": Setting(_is_count, "maximum memory in bytes", _QUORUM, True),
    "max-in-memory-bytes": Setting(_is_count, "maximum memory in bytes", _QUORUM, True),
    "queue-mode": Setting(_is_one_of("default", "lazy"), "queue-mode value", _CLASSIC),
    "queue-version": Setting(_is_one_of(1, 2), "queue-version value", _ALL, True),
    "overflow": Setting(_OVERFLOWS, "overflow value", _BOTH, True),
    "delivery-limit": Setting(_is_integer, "delivery limit", _QUORUM, True),
    "max-age": Setting(is_age, "max age", _STREAM),
    "stream-max-segment-size-bytes": Setting(_is_count, "segment size", _STREAM),
    "queue-leader-locator": Setting(
        _is_one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
        _ALL,
    ),
    "initial-cluster-size": Setting(_is_count, "cluster size", _STREAM),
    "consumer-timeout": Setting(_is_count, "consumer timeout", _ALL),
}

_APPLIES: Final = {
    "all": _ALL,
    "queues": _ALL,
    "classic_queues": _CLASSIC,
    "quorum_queues": _QUORUM,
    "streams": _STREAM,
    "exchanges": frozenset[QueueType](),
}
_STREAMS_IGNORE: Final = frozenset({"queue-version"})


def check(policy: Policy, *, operator: bool = False) -> None:
    """Refuses an invalid policy with PRECONDITION_FAILED and RabbitMQ's text."""
    try:
        Regex(policy.pattern, Dialect.PCRE)
    except InvalidRegex as error:
        raise _wrong(f"pattern should be a regular expression, {error.detail}") from error
    if policy.apply_to not in _APPLIES:
        raise _wrong(
            f"apply-to '{policy.apply_to}' unrecognised; should be one of: 'queues', 'classic_queues', "
            "'quorum_queues', 'streams', 'exchanges', or 'all'"
        )
    if not policy.definition:
        raise _wrong("no policy provided")
    unknown = [name for name in policy.definition if not knows(name, operator=operator)]
    if unknown:
        raise _wrong(f"{unknown} are not recognised policy settings")
    for name, value in policy.definition.items():
        if not SETTINGS[name].fits(value):
            raise _wrong(f"{value!r} is not a valid {SETTINGS[name].what}")


def knows(name: str, *, operator: bool = False) -> bool:
    """Whether a definition may have the key `name`."""
    return name in SETTINGS and (SETTINGS[name].operator or not operator)


def _wrong(detail: str) -> Refusal:
    return Refusal(Reason.PRECONDITION_FAILED, f"Validation failed\n\n{detail}\n")


# --- choice of the policy


def _suits(policy: Policy, kind: QueueType) -> bool:
    """Whether the policy applies to queues of this type. A policy with a key that the type does not know does
    not."""
    ignored = _STREAMS_IGNORE if kind is QueueType.STREAM else frozenset[str]()
    return kind in _APPLIES[policy.apply_to] and not any(
        kind not in SETTINGS[name].types and name not in ignored and name != "alternate-exchange"
        for name in policy.definition
    )


def for_queue(policies: Mapping[str, Policy], name: bytes, kind: QueueType) -> Policy | None:
    return _first([one for one in policies.values() if _suits(one, kind)], name)


def for_exchange(policies: Mapping[str, Policy], name: bytes) -> Policy | None:
    return _first([one for one in policies.values() if one.apply_to in ("all", "exchanges")], name)


def _first(policies: list[Policy], name: bytes) -> Policy | None:
    """Returns the matching policy of the highest priority, the earliest if several are equal."""
    shown = text(name)
    matching = [one for one in policies if _PATTERNS.found(one.pattern, shown)]
    return max(matching, key=lambda one: one.priority, default=None)


# --- merging


def merged(policy: Policy | None, operator: Policy | None) -> dict[str, object]:
    """Returns the merged definition of both policies."""
    found = dict(policy.definition) if policy is not None else {}
    for name, value in (operator.definition if operator is not None else {}).items():
        found[name] = _merge_operator(name, found[name], value) if name in found else value
    return found


def _merge_operator(name: str, value: object, operator: object) -> object:
    return operator if name in ("overflow", "queue-version") else _lower(name, value, operator)


def _lower(name: str, one: object, other: object) -> object:
    assert isinstance(one, int)
    assert isinstance(other, int)
    if name == "delivery-limit" and min(one, other) < 0:
        return max(one, other)  # a negative one is no limit
    return min(one, other)


_LOWER: Final = frozenset(
    {"expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit", "consumer-timeout"}
)


def with_policy(asked: Mapping[str, object], definition: Definition, kind: QueueType) -> dict[str, object]:
    """Returns a queue's declared arguments, with a policy's definition applied.

    If both set a key, the lower of two numbers counts, otherwise the queue's own value. Exception: for
    `overflow` in quorum queues the policy's value counts.
    """
    found = dict(asked)
    for name, value in definition.items():
        argument = f"x-{name}"
        if kind not in SETTINGS[name].types or name == "alternate-exchange":
            continue
        if argument not in found or (name == "overflow" and kind is QueueType.QUORUM):
            found[argument] = value
        elif name in _LOWER:
            found[argument] = _lower(name, value, found[argument])
    return found
