"""Settings of single groups of type consumer (Kafka's resource GROUP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from treecast.middleware.broker.values import ConfigChange, ConfigOperation
from treecast.middleware.model.errors import Fault, TreecastError

from .settings import GroupSettings

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


class GroupConfigKey(Struct, frozen=True):
    """One setting. `setting`, `least`, `most` name the daemon settings for its default and bounds."""

    setting: str
    least: str
    most: str
    doc: str


GROUP_CONFIG_KEYS: Mapping[str, GroupConfigKey] = MappingProxyType(
    {
        SESSION_TIMEOUT: GroupConfigKey(
            "consumer_session_timeout_ms",
            "consumer_min_session_timeout_ms",
            "consumer_max_session_timeout_ms",
            "How long a member may be silent before it is removed, in milliseconds.",
        ),
        HEARTBEAT_INTERVAL: GroupConfigKey(
            "consumer_heartbeat_interval_ms",
            "consumer_min_heartbeat_interval_ms",
            "consumer_max_heartbeat_interval_ms",
            "How often members are told to send heartbeats, in milliseconds.",
        ),
    }
)


def value_of(overrides: Mapping[str, str], name: str, settings: GroupSettings) -> int:
    """Returns the value in ms: the group's own, or the daemon's default."""
    default: int = getattr(settings, GROUP_CONFIG_KEYS[name].setting)
    return int(overrides.get(name, default))


def altered(
    overrides: Mapping[str, str], changes: Sequence[ConfigChange], settings: GroupSettings
) -> dict[str, str]:
    """Returns the overrides after `changes`. Raises INVALID_CONFIG for unknown names and bad values."""
    after = dict(overrides)
    for change in changes:
        if change.name not in GROUP_CONFIG_KEYS:
            raise TreecastError(Fault.INVALID_CONFIG, f"a group has no setting {change.name!r}")
        if change.operation is ConfigOperation.DELETE:
            after.pop(change.name, None)
        elif change.operation is ConfigOperation.SET and change.value is not None:
            after[change.name] = _checked(change.name, change.value, settings)
        else:
            raise TreecastError(Fault.INVALID_CONFIG, f"{change.name} is one number: set it or delete it")
    if value_of(after, SESSION_TIMEOUT, settings) <= value_of(after, HEARTBEAT_INTERVAL, settings):
        raise TreecastError(Fault.INVALID_CONFIG, "the session timeout must exceed the heartbeat interval")
    return after


def _checked(name: str, value: str, settings: GroupSettings) -> str:
    key = GROUP_CONFIG_KEYS[name]
    least, most = getattr(settings, key.least), getattr(settings, key.most)
    if not value.strip().isdecimal() or not least <= int(value) <= most:
        raise TreecastError(Fault.INVALID_CONFIG, f"{name} must be between {least} and {most}, not {value!r}")
    return str(int(value))
