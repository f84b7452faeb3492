"""Kafka's codes in the calls about ACLs, and rules as these calls spell them (KIP-140, KIP-290).

Source: AclOperation, ResourceType, PatternType and AclPermissionType of Apache Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from treecast.middleware.broker.access import CLUSTER, Pattern, Permission, ResourceKind, Rule
from treecast.middleware.model.errors import Fault, TreecastError

from .rights import CODES

UNKNOWN: Final = 0
ANY: Final = 1
MATCH: Final = 2  # a pattern type of filters: all rules that hold for a name
ALL: Final = 2  # an operation
KINDS: Final[Mapping[ResourceKind, int]] = MappingProxyType(
    {
        ResourceKind.TOPIC: 2,
        ResourceKind.GROUP: 3,
        ResourceKind.CLUSTER: 4,
        ResourceKind.TRANSACTIONAL_ID: 5,
    }
)
PATTERNS: Final[Mapping[Pattern, int]] = MappingProxyType({Pattern.LITERAL: 3, Pattern.PREFIXED: 4})
PERMISSIONS: Final[Mapping[Permission, int]] = MappingProxyType({Permission.DENY: 2, Permission.ALLOW: 3})
_USER: Final = "User:"

T = TypeVar("T")


def _named(table: Mapping[T, int], code: int, what: str) -> T:
    for value, known in table.items():
        if known == code:
            return value
    raise TreecastError(Fault.INVALID_REQUEST, f"there are no rules of {what} {code} here")


def rule_of(row: Any) -> Rule:
    """Reads a rule of CreateAcls. Raises INVALID_REQUEST."""
    kind = _named(KINDS, row.resource_type, "resource type")
    if not row.principal.startswith(_USER) or row.principal == _USER:
        raise TreecastError(Fault.INVALID_REQUEST, f"a principal is User:NAME, not {row.principal!r}")
    if not row.resource_name or not row.host:
        raise TreecastError(Fault.INVALID_REQUEST, "resource name and host cannot be empty")
    if kind is ResourceKind.CLUSTER and row.resource_name != CLUSTER:
        raise TreecastError(Fault.INVALID_REQUEST, f"the only cluster is {CLUSTER}")
    return Rule(
        row.principal.removeprefix(_USER),
        _named(PERMISSIONS, row.permission_type, "permission type"),
        None if row.operation == ALL else _named(CODES, row.operation, "operation"),
        kind,
        _named(PATTERNS, row.resource_pattern_type, "pattern type"),
        row.resource_name,
        row.host,
    )


def matcher(row: Any) -> Callable[[Rule], bool]:
    """Returns whether a rule passes the filter of DescribeAcls or DeleteAcls. Raises INVALID_REQUEST."""
    for code in (row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type):
        if code == UNKNOWN:
            raise TreecastError(Fault.INVALID_REQUEST, "a filter with an unknown value")
    return lambda rule: _passes(row, rule)


def _passes(row: Any, rule: Rule) -> bool:
    return (
        row.resource_type_filter in (ANY, KINDS.get(rule.kind))
        and _passes_name(row, rule)
        and row.principal_filter in (None, f"{_USER}{rule.user}")
        and row.host_filter in (None, rule.address)
        and row.operation in (ANY, operation_code(rule))
        and row.permission_type in (ANY, PERMISSIONS[rule.permission])
    )


def _passes_name(row: Any, rule: Rule) -> bool:
    name, pattern = row.resource_name_filter, row.pattern_type_filter
    if pattern == MATCH:
        return name is None or rule.names(name)
    return pattern in (ANY, PATTERNS[rule.pattern]) and name in (None, rule.name)


def operation_code(rule: Rule) -> int:
    """Returns the code of a rule's operation, UNKNOWN for one that Kafka does not have."""
    return ALL if rule.operation is None else CODES.get(rule.operation, UNKNOWN)


def row_of(rule: Rule) -> dict[str, Any]:
    """Returns the fields of a rule without those of its resource."""
    return {
        "principal": f"{_USER}{rule.user}",
        "host": rule.address,
        "operation": operation_code(rule),
        "permission_type": PERMISSIONS[rule.permission],
    }


def resource_of(rule: Rule) -> dict[str, Any]:
    return {
        "resource_type": KINDS.get(rule.kind, UNKNOWN),
        "resource_name": rule.name,
        "pattern_type": PATTERNS[rule.pattern],
    }
