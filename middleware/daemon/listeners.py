"""Listening sockets, and the messages for an operator whose address is not available."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from treecast.middleware.api.discovery import Address

BACKLOG = 128


class StartError(Exception):
    """The daemon cannot start. The text names the setting and the correction."""


def listen(face: str, address: Address, *, queue: bool = True) -> socket.socket:
    """Returns a listening TCP socket of the first address that the host resolves to. Raises StartError."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            if queue:
                listener.listen(BACKLOG)
                listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise cannot_listen(face, address, error) from error
    return listener


def listen_unix(path: Path) -> socket.socket:
    """Returns a listening Unix socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def bound_address(listener: socket.socket) -> Address:
    """Returns the listening address with the chosen port."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def check_free(face: str, address: Address) -> Address:
    """Raises StartError if nobody could listen there; for servers that bind without reporting the reason.

    Returns the numeric address that the host resolves to, with the given port.
    """
    with listen(face, address, queue=False) as listener:
        return Address(bound_address(listener).host, address.port)


def cannot_listen(face: str, address: Address, error: OSError) -> StartError:
    """Returns the error for a refused address."""
    return StartError(f"--{face} {address}: {_reason(address, error)}")


def _reason(address: Address, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    if error.errno == errno.EADDRINUSE:
        return (
            f"the port is in use: stop what listens there (ss -ltnp 'sport = :{address.port}' names it),"
            f" or choose another port (0 picks a free one); off does without"
        )
    if error.errno == errno.EACCES:
        return "not permitted: ports below 1024 are root's; choose a higher one"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address: choose one that `ip address` shows, or 127.0.0.1"
    return f"cannot listen there: {error.strerror or error}"
