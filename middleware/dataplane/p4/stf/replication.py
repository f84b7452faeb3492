"""Multicast nodes, groups and mirror sessions as in bmv2's command line, on top of the switch's own.

bmv2 creates nodes (replication id, ports), adds them to groups, and mirrors to a port or to a group. The
switch stores a group and a session as a list of replicas, which is rewritten when a node changes.
"""

from __future__ import annotations

from ..runtime import CloneSession, Control, MulticastGroup, Replica
from .resolve import ResolveError


class Replication:
    """The nodes, groups and sessions of one run."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._groups: dict[int, list[int]] = {}
        self._mirrored: dict[int, int] = {}

    def create_group(self, group: int) -> None:
        self._control.replication.insert_group(MulticastGroup(group))
        self._groups[group] = []
        self._mirror()

    def create_node(self, rid: int, ports: tuple[int, ...]) -> None:
        """Creates a node; its handle is the number of earlier nodes."""
        self._nodes.append((rid, ports))

    def update_node(self, node: int, ports: tuple[int, ...]) -> None:
        self._check_node(node)
        self._nodes[node] = (self._nodes[node][0], ports)
        for group, nodes in self._groups.items():
            if node in nodes:
                self._write(group)

    def associate(self, group: int, node: int) -> None:
        self._check_node(node)
        if group not in self._groups:
            raise ResolveError(f"there is no multicast group {group}; `mc_mgrp_create {group}` makes it")
        self._groups[group].append(node)
        self._write(group)

    def mirror_to_port(self, session: int, port: int) -> None:
        self._mirrored.pop(session, None)
        self._set_session(CloneSession(session, (Replica(port),)))

    def mirror_to_group(self, session: int, group: int) -> None:
        self._mirrored[session] = group
        self._set_session(CloneSession(session, self._replicas(group)))

    def delete_session(self, session: int) -> None:
        self._control.replication.delete_session(session)
        self._mirrored.pop(session, None)

    def check_session(self, session: int) -> None:
        if all(one.session != session for one in self._control.replication.sessions()):
            raise ResolveError(f"there is no mirror session {session}")

    def _check_node(self, node: int) -> None:
        if node >= len(self._nodes):
            raise ResolveError(f"there is no multicast node {node}; {len(self._nodes)} were made, from 0")

    def _replicas(self, group: int) -> tuple[Replica, ...]:
        nodes = [self._nodes[node] for node in self._groups.get(group, ())]
        return tuple(Replica(port, rid) for rid, ports in nodes for port in ports)

    def _write(self, group: int) -> None:
        self._control.replication.modify_group(MulticastGroup(group, self._replicas(group)))
        self._mirror()

    def _mirror(self) -> None:
        for session, group in self._mirrored.items():
            self._set_session(CloneSession(session, self._replicas(group)))

    def _set_session(self, session: CloneSession) -> None:
        if any(one.session == session.session for one in self._control.replication.sessions()):
            self._control.replication.modify_session(session)
        else:
            self._control.replication.insert_session(session)
