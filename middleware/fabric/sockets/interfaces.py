"""The interface of an address, with its index and MTU; the address that takes the place of one that is gone.
Linux.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

_SIOCGIFMTU = 0x8921
_IFREQ = struct.Struct("16s24s")
_UNKNOWN_MTU = 1280  # the minimum MTU of IPv6 links
_IF_INET6 = Path("/proc/net/if_inet6")
# IFA_F_TEMPORARY, IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_TENTATIVE: addresses that go soon, or are not used
_PASSING = 0x01 | 0x08 | 0x20 | 0x40

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class Interface(Struct, frozen=True):
    """The interface of the fabric's address. `index` 0 and an empty name: no interface has the address."""

    name: str
    index: int
    mtu: int


NO_INTERFACE = Interface("", 0, _UNKNOWN_MTU)


class _Ifaddrs(ctypes.Structure):
    pass


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
]


def interface_of(address: str) -> Interface:
    """Returns the interface with `address`, or the loopback interface whose network contains it.

    Returns NO_INTERFACE if there is none or the address is unspecified.
    """
    wanted = ipaddress.ip_address(address.partition("%")[0])
    if wanted.is_unspecified:
        return NO_INTERFACE
    for name, network in addresses():
        if network.ip == wanted or (
            wanted.is_loopback and network.ip.is_loopback and wanted in network.network
        ):
            return Interface(name, socket.if_nametoindex(name), _mtu(name))
    return NO_INTERFACE


def successor(wanted: str, interface: str, near: Network | None, found: Iterable[tuple[str, Network]]) -> str:
    """Returns the address to use in place of `wanted`: itself if an interface has it, else one of the same
    family on `interface`, above all of the network `near`. Empty if there is none. Pure.
    """
    address = ipaddress.ip_address(wanted)
    others: list[Network] = []
    for name, network in found:
        if network.ip == address:
            return wanted
        if name == interface and network.version == address.version and not network.ip.is_link_local:
            others.append(network)
    # False sorts first. The sort is stable, so that addresses otherwise keep the kernel's order.
    others.sort(key=lambda one: near is None or one.ip not in near.network)
    return str(others[0].ip) if others else ""


def lasting_addresses() -> list[tuple[str, Network]]:
    """As `addresses`, without IPv6 addresses that are temporary, deprecated or not yet confirmed."""
    passing = _passing()
    return [(name, network) for name, network in addresses() if str(network.ip) not in passing]


def _passing() -> Collection[str]:
    try:
        rows = [line.split() for line in _IF_INET6.read_text().splitlines()]
    except OSError:  # without IPv6
        return ()
    return {str(ipaddress.IPv6Address(int(row[0], 16))) for row in rows if int(row[4], 16) & _PASSING}


def network_of(address: str) -> Network | None:
    """Returns the network of an address of this host; None if no interface has it."""
    wanted = ipaddress.ip_address(address)
    return next((network for _, network in addresses() if network.ip == wanted), None)


def is_here(address: str) -> bool:
    """Whether packets for a numeric address reach this host: an interface has it, or it is unspecified."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    return wanted.is_unspecified or wanted.is_loopback or network_of(str(wanted)) is not None


def addresses() -> Iterator[tuple[str, Network]]:
    """Yields (interface name, address with its network) for all addresses of this host. getifaddrs(3)."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_Ifaddrs)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs")
    try:
        at = head
        while at:
            entry = at.contents
            found = _address(entry.address, entry.netmask)
            if found is not None:
                yield entry.name.decode(), found
            at = entry.next
    finally:
        libc.freeifaddrs(head)


def _address(address: int | None, netmask: int | None) -> Network | None:
    if not address or not netmask:
        return None
    (family,) = struct.unpack("=H", ctypes.string_at(address, 2))
    if family == socket.AF_INET:
        packed, mask = (ctypes.string_at(at + 4, 4) for at in (address, netmask))
        return ipaddress.IPv4Interface((packed, int.from_bytes(mask).bit_count()))
    if family == socket.AF_INET6:
        packed, mask = (ctypes.string_at(at + 8, 16) for at in (address, netmask))
        return ipaddress.IPv6Interface((packed, int.from_bytes(mask).bit_count()))
    return None


def _mtu(name: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, _IFREQ.pack(name.encode(), bytes(24)))
    mtu: int = struct.unpack_from("=i", answer, 16)[0]
    return mtu
