"""PacketReplicationEngineEntry: multicast groups and clone sessions (9.5). Ports are the switch's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeVar

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import CloneSession, Control, MulticastGroup, Replica

from .bytestrings import decode, encode
from .errors import Code, P4RuntimeError, invalid
from .schema import Schema
from .store import DELETE, INSERT, Store, Undo

_Replicated = TypeVar("_Replicated", p4r.MulticastGroupEntry, p4r.CloneSessionEntry)
_PORT_BITS = 32
_INSTANCE_BITS = 16


class ReplicationStore(Store[p4r.PacketReplicationEngineEntry]):
    """Groups and sessions. Those written with `egress_port`, as by clients before P4Runtime 1.4, are read
    back the same way.
    """

    def __init__(self, schema: Schema, control: Control) -> None:
        super().__init__(schema, control)
        self._numbered: set[tuple[str, int]] = set()

    def write(
        self, kind: p4r.Update.Type.ValueType, message: p4r.PacketReplicationEngineEntry, now: float
    ) -> Undo:
        which = message.WhichOneof("type")
        if which == "multicast_group_entry":
            group = message.multicast_group_entry
            undo = self._write_group(kind, group)
            self._note("group", group.multicast_group_id, () if kind == DELETE else group.replicas)
            return undo
        if which == "clone_session_entry":
            session = message.clone_session_entry
            undo = self._write_session(kind, session)
            self._note("session", session.session_id, () if kind == DELETE else session.replicas)
            return undo
        raise invalid("a packet replication engine entry is a multicast group or a clone session")

    def _write_group(self, kind: p4r.Update.Type.ValueType, message: p4r.MulticastGroupEntry) -> Undo:
        if not message.multicast_group_id:
            raise invalid("a multicast group's id is above 0")
        control = self.control
        if kind == INSERT:
            control.replication.insert_group(group_entry_from(message))
            return partial(control.replication.delete_group, message.multicast_group_id)
        old = control.replication.group(message.multicast_group_id)
        if kind == DELETE:
            control.replication.delete_group(old.group)
            return partial(control.replication.insert_group, old)
        control.replication.modify_group(group_entry_from(message))
        return partial(control.replication.modify_group, old)

    def _write_session(self, kind: p4r.Update.Type.ValueType, message: p4r.CloneSessionEntry) -> Undo:
        if not message.session_id:
            raise invalid("a clone session's id is above 0")
        control = self.control
        if kind == INSERT:
            control.replication.insert_session(session_from(message))
            return partial(control.replication.delete_session, message.session_id)
        old = control.replication.session(message.session_id)
        if kind == DELETE:
            control.replication.delete_session(old.session)
            return partial(control.replication.insert_session, old)
        control.replication.modify_session(session_from(message))
        return partial(control.replication.modify_session, old)

    def _note(self, what: str, number: int, replicas: Iterable[p4r.Replica]) -> None:
        numbered = any(one.WhichOneof("port_kind") == "egress_port" for one in replicas)
        (self._numbered.add if numbered else self._numbered.discard)((what, number))

    def _as_written(self, what: str, number: int, message: _Replicated) -> _Replicated:
        if (what, number) in self._numbered:
            for one in message.replicas:
                one.egress_port = int.from_bytes(one.port, "big")
        return message

    def read(self, wanted: p4r.PacketReplicationEngineEntry, now: float) -> Iterator[p4r.Entity]:
        which = wanted.WhichOneof("type")
        if which == "multicast_group_entry":
            number = wanted.multicast_group_entry.multicast_group_id
            for group in (
                [self.control.replication.group(number)] if number else self.control.replication.groups()
            ):
                yield _entity(
                    p4r.PacketReplicationEngineEntry(
                        multicast_group_entry=self._as_written("group", group.group, group_entry_to(group))
                    )
                )
        elif which == "clone_session_entry":
            number = wanted.clone_session_entry.session_id
            for session in (
                [self.control.replication.session(number)] if number else self.control.replication.sessions()
            ):
                yield _entity(
                    p4r.PacketReplicationEngineEntry(
                        clone_session_entry=self._as_written("session", session.session, session_to(session))
                    )
                )
        else:
            raise invalid("a packet replication engine entry is a multicast group or a clone session")


def _entity(message: p4r.PacketReplicationEngineEntry) -> p4r.Entity:
    return p4r.Entity(packet_replication_engine_entry=message)


def _replicas_from(sent: Iterable[p4r.Replica], what: str) -> tuple[Replica, ...]:
    found: list[Replica] = []
    for one in sent:
        if one.backup_replicas:
            raise P4RuntimeError(Code.UNIMPLEMENTED, f"{what}: there are no backup replicas")
        kind = one.WhichOneof("port_kind")
        if kind is None:
            raise invalid(f"{what}: a replica has no port")
        port = one.egress_port if kind == "egress_port" else decode(one.port, _PORT_BITS, f"{what}, port")
        if one.instance >> _INSTANCE_BITS:
            raise invalid(f"{what}: instance {one.instance} has more than {_INSTANCE_BITS} bits")
        found.append(Replica(port, one.instance))
    if len(set(found)) < len(found):
        raise invalid(f"{what}: two replicas have the same port and instance")
    return tuple(found)


def _replicas_to(replicas: Iterable[Replica]) -> list[p4r.Replica]:
    return [p4r.Replica(port=encode(one.port), instance=one.instance) for one in replicas]


def group_entry_from(message: p4r.MulticastGroupEntry) -> MulticastGroup:
    """Returns a group as sent."""
    replicas = _replicas_from(message.replicas, f"multicast group {message.multicast_group_id}")
    return MulticastGroup(message.multicast_group_id, replicas, message.metadata)


def group_entry_to(group: MulticastGroup) -> p4r.MulticastGroupEntry:
    return p4r.MulticastGroupEntry(
        multicast_group_id=group.group, replicas=_replicas_to(group.replicas), metadata=group.metadata
    )


def session_from(message: p4r.CloneSessionEntry) -> CloneSession:
    """Returns a session as sent."""
    what = f"clone session {message.session_id}"
    if message.packet_length_bytes < 0:
        raise invalid(f"{what}: the packet length is negative")
    replicas = _replicas_from(message.replicas, what)
    return CloneSession(message.session_id, replicas, message.class_of_service, message.packet_length_bytes)


def session_to(session: CloneSession) -> p4r.CloneSessionEntry:
    return p4r.CloneSessionEntry(
        session_id=session.session,
        replicas=_replicas_to(session.replicas),
        class_of_service=session.class_of_service,
        packet_length_bytes=session.packet_length,
    )
