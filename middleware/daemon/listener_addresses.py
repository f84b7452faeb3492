"""Notices that no interface of this machine has the address of a listener any more, and says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treecast.middleware.api.discovery import Address
from treecast.middleware.fabric.sockets.address_watch import AddressWatch
from treecast.middleware.fabric.sockets.interfaces import is_here
from treecast.middleware.model.logs import Log

_log = Log(__name__)
_FABRIC = "fabric"  # looks after itself (`relay.own_place`)


class ListenerAddresses:
    """`problems`: a sentence for each address that is gone."""

    def __init__(self, listening: Callable[[], Mapping[str, str]]) -> None:
        """`listening` returns the addresses of the listeners, HOST:PORT, by name."""
        self._listening = listening
        self._watch = AddressWatch(self.look)
        self.problems: tuple[str, ...] = ()
        self._gone: frozenset[str] = frozenset()

    def is_gone(self, address: str) -> bool:
        """Whether no interface has the address of a listener, HOST:PORT, any more."""
        return Address.parse(address).host in self._gone

    def start(self) -> None:
        self._watch.start()

    def close(self) -> None:
        self._watch.close()

    def look(self) -> None:
        """Looks now, and logs what is new."""
        by_host = gone(self._listening())
        self._gone = frozenset(by_host)
        found = tuple(by_host.values())
        for text in found:
            if text not in self.problems:
                _log.error("address of listeners is gone", reason=text)
        if self.problems and not found:
            _log.info("addresses of listeners are back")
        self.problems = found


def gone(listening: Mapping[str, str]) -> dict[str, str]:
    """Returns the hosts of listeners' addresses that no interface has, each with a sentence."""
    by_host: dict[str, list[str]] = {}
    for name, address in listening.items():
        if name != _FABRIC:
            by_host.setdefault(Address.parse(address).host, []).append(name)
    return {host: _said(host, names) for host, names in by_host.items() if _is_gone(host)}


def _is_gone(host: str) -> bool:
    try:
        return not is_here(host)
    except ValueError:  # a name, which may lead to several addresses
        return False


def _said(host: str, names: list[str]) -> str:
    flags = ", ".join(f"--{name}" for name in names)
    return (
        f"no interface of this host has {host}, where {flags} listen: clients and other hosts cannot reach"
        " them there. They answer again once an interface has it; otherwise start with an address of this"
        " host (`ip address`)"
    )
