"""Which web pages may call this host, by the headers `Host`, `Origin` and `Sec-Fetch-Site` of HTTP.

Any page in a browser on this machine can send requests to its ports and open WebSockets to them. Two rules,
for the admin address and for MQTT over WebSocket alike, keep foreign pages out:

- `Host` (RFC 9110, 7.2) has to name this host. A foreign page can give its own name this host's address (DNS
  rebinding); its requests then carry the foreign name.
- What may change something has to come from a page of the same origin, from a listed one, or from no page at
  all. `Sec-Fetch-Site` (W3C Fetch Metadata) tells, as scripts cannot set it; browsers that do not send it
  send `Origin` (RFC 6454). Tools other than browsers send neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_LOCAL: Final = "localhost"
_ALL: Final = "*"
_OWN_SITES: Final = ("same-origin", "none")  # none: the user's own doing, such as an address typed in
_PORTS: Final = {"http": "80", "ws": "80", "https": "443", "wss": "443"}


class WebCallers:
    """The rules of one listener. `names`: names of this host; `origins`: pages of others that may call, as
    `https://shop.example`. `*` in either stands for all.
    """

    def __init__(self, names: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names if name)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def knows(self, host: str, reached: str) -> bool:
        """Returns whether `host`, of a request that reached the address `reached`, names this host."""
        return _ALL in self._names or is_own_name(host, reached, self._names)

    def admits(self, host: str, origin: str, site: str) -> bool:
        """Returns whether a request that may change something is not a foreign page's. A missing header is
        empty."""
        if origin and (_ALL in self._origins or origin.lower() in self._origins):
            return True
        if site:
            return site.lower() in _OWN_SITES
        return not origin or _authority(origin) == _authority(host, origin)


def _authority(text: str, like: str = "") -> tuple[str, str]:
    """Returns (host, port) of an origin, or of a `Host` header for a request from the origin `like`.

    The schemes need not agree: a proxy may end TLS, and clients that are no browsers guess.
    """
    scheme, separator, rest = text.rpartition("://")
    host, port = _parted(rest)
    return host, port or _PORTS.get((scheme if separator else like.partition("://")[0]).lower(), "")


def host_of(header: str) -> str:
    """Returns `name:port`, `1.2.3.4:port` or `[::1]:port` without the port, in lower case."""
    return _parted(header)[0]


def _parted(authority: str) -> tuple[str, str]:
    """Returns (host in lower case, port or "")."""
    text = authority.strip().lower()
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit() and ":" not in name:
        return name.rstrip("."), port
    return text.rstrip("."), ""


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
