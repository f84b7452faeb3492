"""Datagrams between the hosts of a lab, numbered so that loss, copies and disorder can be counted."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import struct
from collections.abc import Iterator

from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import open_socket

PORT = 5000
GROUP = "239.1.2.3"
_SILENCE = 0.3  # seconds without a datagram that end a collection; nothing is asserted about it
_PATIENCE = 20.0  # the same while more datagrams are expected
_BUFFER_BYTES = 8 * 1024 * 1024
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


@contextlib.contextmanager
def datagrams(lab: Lab, node: str, *, ipv6: bool = False) -> Iterator[socket.socket]:
    """Opens a UDP socket of a host on PORT, all addresses."""
    end = open_socket(lab.namespace(node), socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    with end:
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            end.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        end.bind(("::" if ipv6 else "", PORT))
        yield end


def join(lab: Lab, node: str, end: socket.socket, group: str = GROUP) -> None:
    """Adds a host's socket to a group, on the host's first interface."""
    request = struct.pack(
        "4s4s", ipaddress.ip_address(group).packed, ipaddress.ip_address(lab.ipv4(node)).packed
    )
    end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)


def send(end: socket.socket, target: str, count: int, *, size: int = 100, first: int = 0) -> None:
    """Sends `count` datagrams that start with their number."""
    padding = bytes(size - 4)
    for number in range(first, first + count):
        end.sendto(struct.pack("!I", number) + padding, (target, PORT))


def collect(end: socket.socket, wanted: int = 0) -> list[int]:
    """Returns the numbers that arrive until there is silence; waits longer if fewer than `wanted` came."""
    numbers: list[int] = []
    while select.select([end], [], [], _SILENCE if len(numbers) >= wanted else _PATIENCE)[0]:
        numbers.append(struct.unpack_from("!I", end.recv(65536))[0])
    return numbers


def reaches(lab: Lab, one: str, other: str, *, ipv6: bool = False, tries: int = 20) -> bool:
    """Returns whether a datagram reaches the other host and its reply comes back."""
    target = lab.ipv6(other) if ipv6 else lab.ipv4(other)
    with datagrams(lab, one, ipv6=ipv6) as here, datagrams(lab, other, ipv6=ipv6) as there:
        for _ in range(tries):
            here.sendto(b"ping", (target, PORT))
            if not select.select([there], [], [], _SILENCE)[0]:
                continue
            data, sender = there.recvfrom(100)
            there.sendto(data, sender)
            if select.select([here], [], [], _SILENCE)[0]:
                return here.recv(100) == b"ping"
    return False
