"""The channel's TCP sockets: one port number with the UDP socket of segments, and short TCP segments."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

from treecast.middleware.api.discovery import Address

_ATTEMPTS = 100
# The largest TCP segment fits a packet of 1,280 bytes. The kernel does not look for the MTU of a path whose
# switches drop long packets silently (net.ipv4.tcp_mtu_probing is 0): a connection would stand still there,
# and with it the answers by which the fabric finds that MTU.
_SEGMENT_BYTES = {socket.AF_INET: 1280 - 20 - 20, socket.AF_INET6: 1280 - 40 - 20}


async def connect(
    loop: asyncio.AbstractEventLoop,
    address: Address,
    make: Callable[[], asyncio.BaseProtocol],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Connects a protocol that `make` returns to `address`, by `tls` on a secured host. Raises OSError: that
    of the last address found for it."""
    made = await _connected(loop, address)
    try:
        # The name is looked at by nobody: whose certificate it is says `Channels.vouch`.
        name = address.host if tls is not None else None
        await loop.create_connection(make, sock=made, ssl=tls, server_hostname=name)
    except BaseException:
        made.close()
        raise


async def _connected(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    """Returns a TCP socket connected to `address`. Raises OSError, that of the last address found for it."""
    failed = OSError(errno.EADDRNOTAVAIL, "no address found")
    for family, _, _, _, where in await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        made = _stream(socket.AddressFamily(family))
        try:
            await loop.sock_connect(made, where)
            return made
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
    raise failed


def _stream(family: socket.AddressFamily) -> socket.socket:
    """Returns a TCP socket, not blocking, for connections or to listen for them."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES[family])
    return made


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
            # The number that TCP was given may be taken for UDP: another one is tried.
            if error.errno != errno.EADDRINUSE:
                raise
    return _bind_both(family, where)


def listening(address: Address) -> socket.socket:
    """Returns a TCP socket bound to `address`, which does not listen yet. Raises OSError."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    return _bound(found[0], socket.SOCK_STREAM, found[4])


def _bind_both(family: socket.AddressFamily, where: tuple[Any, ...]) -> tuple[socket.socket, socket.socket]:
    stream = _bound(family, socket.SOCK_STREAM, where)
    try:
        datagrams = _bound(family, socket.SOCK_DGRAM, (where[0], stream.getsockname()[1], *where[2:]))
    except OSError:
        stream.close()
        raise
    return stream, datagrams


def _bound(family: socket.AddressFamily, kind: socket.SocketKind, where: tuple[Any, ...]) -> socket.socket:
    made = _stream(family) if kind is socket.SOCK_STREAM else socket.socket(family, kind)
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
