"""A host's group memberships on one interface. Linux.

The kernel limits the memberships of a socket (20 of IPv4, `net.ipv4.igmp_max_memberships`). It delivers the
groups joined by any socket of the host to a socket that is bound to a port without an address
(IP_MULTICAST_ALL). Therefore unbound holder sockets only hold memberships, like STARE's membership-makers,
and one other socket receives.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection
from typing import Final

from .interfaces import Interface

_IPV4_JOIN, _IPV4_LEAVE = 35, 36
_IPV6_JOIN, _IPV6_LEAVE = 20, 21
_FULL: Final = frozenset({errno.ENOBUFS, errno.ENOMEM})
_MOST_PER_HOLDER: Final = 500  # IPv6 has no limit, but the kernel searches a socket's list linearly


class _Holder:
    __slots__ = ("count", "full", "sock")

    def __init__(self, family: int) -> None:
        self.sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.count = 0
        self.full = False


class Memberships:
    """The groups of one address family on one interface."""

    def __init__(self, interface: Interface, family: int) -> None:
        self._interface = interface
        self._family = family
        self._groups: dict[bytes, _Holder] = {}
        self._holders: list[_Holder] = []
        self._open: list[_Holder] = []  # holders with room

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: bytes) -> bool:
        return group in self._groups

    @property
    def groups(self) -> Collection[bytes]:
        """The joined groups, packed addresses."""
        return self._groups.keys()

    @property
    def holders(self) -> int:
        return len(self._holders)

    def join(self, group: bytes) -> None:
        """Joins a group, unless joined already. Raises OSError if even a new socket cannot join."""
        if group in self._groups:
            return
        while self._open:
            # One is filled before the next is opened: each costs a file descriptor.
            holder = self._open[-1]
            if holder.count < _MOST_PER_HOLDER and self._add(holder, group):
                return
            holder.full = True
            self._open.pop()
        holder = _Holder(self._family)
        if not self._add(holder, group):
            holder.sock.close()
            raise OSError(errno.ENOBUFS, "the kernel allows no membership: net.ipv4.igmp_max_memberships?")
        self._holders.append(holder)
        self._open.append(holder)

    def _add(self, holder: _Holder, group: bytes) -> bool:
        """Joins a group with a holder. Returns False if the holder has no room."""
        try:
            self._set(holder, group, _IPV6_JOIN if self._family == socket.AF_INET6 else _IPV4_JOIN)
        except OSError as error:
            if error.errno in _FULL:
                return False
            if not holder.count:
                holder.sock.close()
            # An error of another kind than a full socket: the group or the interface is at fault, so no other
            # is tried.
            raise
        holder.count += 1
        self._groups[group] = holder
        return True

    def leave(self, group: bytes) -> None:
        """Leaves a group, if joined."""
        holder = self._groups.pop(group, None)
        if holder is None:
            return
        self._set(holder, group, _IPV6_LEAVE if self._family == socket.AF_INET6 else _IPV4_LEAVE)
        holder.count -= 1
        if holder.full:
            holder.full = False
            self._open.append(holder)
        if not holder.count:
            self._open.remove(holder)
            self._holders.remove(holder)
            holder.sock.close()

    def _set(self, holder: _Holder, group: bytes, option: int) -> None:
        index = self._interface.index
        if self._family == socket.AF_INET6:
            holder.sock.setsockopt(socket.IPPROTO_IPV6, option, struct.pack("=16sI", group, index))
        else:
            holder.sock.setsockopt(socket.IPPROTO_IP, option, struct.pack("=4s4si", group, bytes(4), index))

    def close(self) -> None:
        for holder in self._holders:
            holder.sock.close()
        self._holders.clear()
        self._open.clear()
        self._groups.clear()
