"""Permissions of a role: Stratum's P4RoleConfig, in the `role.config` of a MasterArbitrationUpdate.

P4Runtime leaves the form to server and controllers; existing clients use this one. A role without a
configuration may do everything, as may the role without a name. A configured one writes and reads the
entities with the listed identifiers (replication entities have none and are open to all), receives
notifications about these alone, gets packets only on request, and sets pipelines only if allowed.
"""

from __future__ import annotations

from typing import Any, Final

from finsy.proto import p4r, stratum
from google.protobuf.message import DecodeError
from msgspec import Struct

from .errors import Code, P4RuntimeError, invalid

_ID_FIELDS: Final = {
    "table_entry": "table_id",
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "meter_entry": "meter_id",
    "counter_entry": "counter_id",
    "register_entry": "register_id",
    "digest_entry": "digest_id",
    "value_set_entry": "value_set_id",
}


class RoleConfig(Struct, frozen=True):
    """`ids`: the identifiers that it may write and read; no other configured role may use those in
    `exclusive`.
    """

    ids: frozenset[int]
    exclusive: frozenset[int]
    packet_ins: bool
    packet_filter: tuple[int, bytes] | None
    pipeline: bool
    message: Any  # google.protobuf.Any, as it was sent


class Roles:
    """The configurations that primaries have given their roles."""

    def __init__(self) -> None:
        self._configs: dict[str, RoleConfig] = {}

    def read(self, name: str, role: p4r.Role) -> RoleConfig | None:
        """Returns the role config of an arbitration update. Raises INVALID_ARGUMENT if it is invalid, or
        claims exclusive identifiers of another role.
        """
        if not role.HasField("config"):
            return None
        if not name:
            raise invalid("the role without a name may do everything: a configuration needs a role with one")
        config = _read(role)
        for other, known in self._configs.items():
            if other != name and (config.exclusive & known.ids or config.ids & known.exclusive):
                raise invalid(f"role {other!r} has some of these identifiers, and one of the two for itself")
        return config

    def set(self, name: str, config: RoleConfig | None) -> None:
        """Sets the configuration that a role's primary sent."""
        self._configs.pop(name, None)
        if config is not None:
            self._configs[name] = config

    def get(self, name: str) -> RoleConfig | None:
        return self._configs.get(name)

    def check_write(self, name: str, request: p4r.WriteRequest) -> None:
        """Raises PERMISSION_DENIED if one of the updates is not the role's affair: then none is done."""
        for update in request.updates:
            if not self.covers(name, update.entity):
                which = update.entity.WhichOneof("entity")
                raise P4RuntimeError(
                    Code.PERMISSION_DENIED, f"role {name!r} may not write {which} {_id(update.entity):#x}"
                )

    def check_pipeline(self, name: str) -> None:
        """Raises PERMISSION_DENIED if the role may not set one."""
        config = self._configs.get(name)
        if config is not None and not config.pipeline:
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"role {name!r} may not set pipelines")

    def covers(self, name: str, entity: p4r.Entity) -> bool:
        """Returns whether the role may write the entity, and sees it."""
        config, number = self._configs.get(name), _id(entity)
        return config is None or not number or number in config.ids

    def told(self, name: str, message: p4r.StreamMessageResponse) -> p4r.StreamMessageResponse | None:
        """Returns the part of a switch's message that the role may receive; None: nothing."""
        config = self._configs.get(name)
        if config is None:
            return message
        kind = message.WhichOneof("update")
        if kind == "packet":
            return message if _wants(config, message.packet) else None
        if kind == "digest":
            return message if message.digest.digest_id in config.ids else None
        if kind == "idle_timeout_notification":
            return _own_entries(config, message)
        return message


def _read(role: p4r.Role) -> RoleConfig:
    sent = stratum.P4RoleConfig()
    try:
        if not role.config.Unpack(sent):
            raise invalid(f"a role's configuration is a stratum.P4RoleConfig, not {role.config.type_url!r}")
    except DecodeError as error:
        raise invalid("the role's configuration cannot be read") from error
    exclusive, shared = frozenset(sent.exclusive_p4_ids), frozenset(sent.shared_p4_ids)
    chosen = sent.packet_in_filter
    packets = (chosen.metadata_id, chosen.value) if sent.HasField("packet_in_filter") else None
    return RoleConfig(
        exclusive | shared, exclusive, sent.receives_packet_ins, packets, sent.can_push_pipeline, role.config
    )


def _id(entity: p4r.Entity) -> int:
    """Returns the identifier of an entity's object; 0 if it has none, or is a wildcard."""
    which = entity.WhichOneof("entity")
    if which in ("direct_counter_entry", "direct_meter_entry"):
        return int(getattr(entity, which).table_entry.table_id)
    return int(getattr(getattr(entity, which), _ID_FIELDS[which])) if which in _ID_FIELDS else 0


def _wants(config: RoleConfig, packet: p4r.PacketIn) -> bool:
    if not config.packet_ins or config.packet_filter is None:
        return config.packet_ins
    number, value = config.packet_filter
    return any(one.metadata_id == number and one.value == value for one in packet.metadata)


def _own_entries(config: RoleConfig, message: p4r.StreamMessageResponse) -> p4r.StreamMessageResponse | None:
    own = [one for one in message.idle_timeout_notification.table_entry if one.table_id in config.ids]
    if not own:
        return None
    found = p4r.StreamMessageResponse()
    found.idle_timeout_notification.timestamp = message.idle_timeout_notification.timestamp
    found.idle_timeout_notification.table_entry.extend(own)
    return found
