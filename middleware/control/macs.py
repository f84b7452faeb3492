"""MAC addresses in descriptions of networks."""

from __future__ import annotations

from treecast.middleware.routing.network import RoutingError


def mac_bytes(text: str) -> bytes:
    """Returns the 6 bytes of `02:00:00:00:00:01`. Raises RoutingError."""
    try:
        packed = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        packed = b""
    if len(packed) != 6:
        raise RoutingError(f"{text!r} is not a MAC address")
    return packed


def mac_of(text: str) -> int:
    """Returns the address as a number. Raises RoutingError."""
    return int.from_bytes(mac_bytes(text))
