"""Identifies the other end of a connection: a process of this host's user or group, or somebody else.

The kernel knows the owners of local sockets: `/proc/net/tcp` lists both ends of a connection within the host,
each with its owner, and only this end of a connection from another host. On systems without that file (other
than Linux), connections from loopback count as local.
"""

from __future__ import annotations

import os
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

Place = tuple[IPv4Address | IPv6Address, int]  # an address and a port

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_ROOT = 0


def is_own(peer: str, port: int) -> bool:
    """Returns whether `peer`, as gRPC names it, is a process of this host's user, of its group, or of root.

    `port`: the daemon's port that it connected to. The mode of a Unix socket protects it already.
    """
    if peer.startswith("unix"):
        return True
    place = parse_peer(peer)
    if place is None:
        return False
    if not _TABLES[0].exists():
        return place[0].is_loopback
    user = socket_user(place, port)
    return user is not None and _is_ours(user)


def parse_peer(peer: str) -> Place | None:
    """Parses `ipv4:127.0.0.1:4242` or `ipv6:%5B::1%5D:4242`; returns None for anything else."""
    kind, _, text = unquote(peer).partition(":")
    host, _, port = text.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    try:
        return _plain(ip_address(host.strip("[]").partition("%")[0])), int(port)
    except ValueError:
        return None


def socket_user(place: Place, port: int) -> int | None:
    """Returns the user whose socket at `place` on this host is connected to `port`; None if there is none."""
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _ESTABLISHED and _place(fields[2])[1] == port and _place(fields[1]) == place:
                return int(fields[7])
    return None


def _place(text: str) -> Place:
    """Parses `0100007F:1F90`: an address as 32-bit words in the processor's order, and a port, in
    hexadecimal.
    """
    address, _, port = text.partition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    found = IPv4Address(packed) if len(words) == 1 else _plain(IPv6Address(packed))
    return found, int(port, 16)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Returns an IPv4-mapped IPv6 address as IPv4."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _is_ours(user: int) -> bool:
    if user in (_ROOT, os.geteuid()):
        return True
    import grp  # imported here because few daemons need it
    import pwd

    try:
        entry = pwd.getpwuid(user)
        group = os.getegid()
        return entry.pw_gid == group or entry.pw_name in grp.getgrgid(group).gr_mem
    except KeyError:
        return False
