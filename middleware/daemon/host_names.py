"""The valid names of the admin address: the `Host` header of HTTP (RFC 9110, 7.2).

A foreign web page can give its own name this host's address (DNS rebinding), and a browser then sends the
page's requests here. They carry the foreign name and are therefore refused with 421.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address

_LOCAL = "localhost"


def host_of(header: str) -> str:
    """Returns `name:port`, `1.2.3.4:port` or `[::1]:port` without the port, in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, colon, port = text.rpartition(":")
    return (name if colon and port.isdigit() and ":" not in name else text).rstrip(".")


def is_own_name(header: str, reached: str, names: Collection[str]) -> bool:
    """Returns whether `header` names this host: as loopback, by the address that was `reached`, or by one of
    `names` (in lower case).
    """
    host = host_of(header)
    if host == _LOCAL or host.endswith("." + _LOCAL) or host in names:
        return True
    address = _address(host)
    return address is not None and (address.is_loopback or address == _address(reached))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Returns the address; an IPv4-mapped IPv6 address as IPv4. None if the text is not an address."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
