"""Advice for operators whose hosts are not connected, by the reason. Pure.

Only reasons that a closed port can have advise to open ports.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .codec import Problem

PORTS: Final = (
    "look whether that host is up and its network answers to ping; if it does, open its --fabric port, TCP"
    " and UDP, in the firewalls between"
)
_ROUTE: Final = (
    "look at the cable, the switch port and the addresses of both hosts (`ip address`, `ip route get`)"
)
_PATH: Final = (
    "the network between the hosts or the other machine has stopped: look at the link, the switch and that"
    " host; it is tried again"
)
_TOKEN: Final = "give both hosts the join token of the same cluster"  # nosec B105  # a sentence
_VERSIONS: Final = "run the same version of Treecast on both hosts"
_NAMES: Final = "two daemons use one name, or an old address: look at --name and --fabric of both"
_BUSY: Final = "it is tried again; look at the load of both hosts if it lasts"
_ITSELF: Final = "it is tried again"

_BY_PROBLEM: Final[Mapping[Problem, str]] = MappingProxyType(
    {
        Problem.NOT_A_CHANNEL: "another program listens there: look at the host's --fabric address",
        Problem.VERSION: _VERSIONS,
        Problem.CLUSTER: _TOKEN,
        Problem.AUTHENTICATION: _TOKEN,
        Problem.PROOF: _TOKEN,
        Problem.WRONG_HOST: _NAMES,
        Problem.SELF: _NAMES,
        Problem.STALE: "a newer run of that host is known: stop the older daemon",
        Problem.DUPLICATE: _ITSELF,
        Problem.FORGED: "something between the hosts changes what they send; " + _ITSELF,
        Problem.LENGTH: _VERSIONS,
        Problem.KIND: _VERSIONS,
        Problem.UNEXPECTED: _VERSIONS,
        Problem.WINDOW: _VERSIONS,
        Problem.ENCODING: _VERSIONS,
        Problem.SILENT: _PATH,
        Problem.HANDSHAKE: _PATH,
        Problem.CROWDED: _BUSY,
        Problem.LOST: _PATH,
        Problem.CLOSED: "that daemon was stopped: start it again",
        Problem.REMOVED: "the host was removed from the cluster",
        Problem.REPLACED: _ITSELF,
        Problem.CERTIFICATE: "join again with a new token (`treecast token create`), if it is to be a host",
        Problem.REFUSED: "look at the log of the other host, which says why",
        Problem.UNREACHABLE: PORTS,
    }
)
_BY_ERRNO: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ECONNREFUSED: "no daemon listens there, and that machine is up: start it, or see its --fabric",
        errno.EHOSTUNREACH: _ROUTE,
        errno.ENETUNREACH: _ROUTE,
        errno.ENETDOWN: _ROUTE,
        errno.EADDRNOTAVAIL: "this host has no address to send from: look at `ip address` here",
    }
)


def next_step(problem: Problem, code: int = 0) -> str:
    """Returns what to look at. `code`: the errno of an attempt to connect that failed; 0: it has none, below
    0: a name was looked up in vain.
    """
    if code < 0:
        return "this host cannot look up the name in that host's --fabric-advertised: look at its resolver"
    return _BY_ERRNO.get(code) or _BY_PROBLEM[problem]
