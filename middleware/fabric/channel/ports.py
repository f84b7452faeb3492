"""One port number for the channel (TCP) and for segments (UDP)."""

from __future__ import annotations

import errno
import socket
from typing import Any

from treecast.middleware.api.discovery import Address

_ATTEMPTS = 100


def listen_on_one_number(address: Address) -> tuple[socket.socket, socket.socket]:
    """Returns a TCP and a UDP socket bound to the same port number. Port 0 picks a number free for both.

    The TCP socket does not listen yet (`Channels.start` takes it). Both are non-blocking; the caller owns
    them. Raises OSError if no number is free.
    """
    family, _, _, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    for _ in range(_ATTEMPTS - 1 if address.port == 0 else 0):
        try:
            return _bind_both(family, where)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _bind_both(family, where)


def _bind_both(family: socket.AddressFamily, where: tuple[Any, ...]) -> tuple[socket.socket, socket.socket]:
    stream = _bound(family, socket.SOCK_STREAM, where)
    try:
        datagrams = _bound(family, socket.SOCK_DGRAM, (where[0], stream.getsockname()[1], *where[2:]))
    except OSError:
        stream.close()
        raise
    return stream, datagrams


def _bound(family: socket.AddressFamily, kind: socket.SocketKind, where: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, kind)
    try:
        made.setblocking(False)
        if kind is socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)
    except OSError:
        made.close()
        raise
    return made
