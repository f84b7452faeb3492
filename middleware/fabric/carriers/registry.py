"""The carriers of a host: found by name, opened together, picked stream by stream.

    carriers = Carriers(settings)                 # unicast, and those that the settings name, preferred first
    carriers.open(edge)
    carriers.pick(hosts, mtu, 2)                  # for a stream: the first that reaches enough of its hosts
    carriers.named("ip-multicast").join(state)    # ValueError where it is not in use here
    carriers.of_form("ip-multicast").join(state)

A carrier is the module of its name in this package, or what `register` was given for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.udp import SocketAddress

from .carrier import Carrier, CarrierState, Place
from .unicast import Unicast

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

Make = Callable[[FabricSettings], Carrier]

_PACKAGE: Final = __name__.rpartition(".")[0]
_registered: Final[dict[str, Make]] = {}


def register(name: str, make: Make) -> None:
    """Settings may name it from now on, in the place of a carrier of that name, if there is one."""
    _registered[name] = make


def maker_of(name: str) -> Make:
    """ValueError where there is no such carrier."""
    if name in _registered:
        return _registered[name]
    module = name.replace("-", "_")
    make: Make | None = None
    if module.isidentifier() and find_spec(f"{_PACKAGE}.{module}") is not None:
        make = getattr(import_module(f"{_PACKAGE}.{module}"), "make", None)
    if make is None:
        raise ValueError(f"{name!r} is no carrier")
    return make


class Carriers:
    """Those of one host. A carrier's number is its place: 0 is unicast, which carries what others don't."""

    def __init__(self, settings: FabricSettings) -> None:
        """ValueError where the settings name none, or two that address the same groups."""
        self.unicast = Unicast()
        self.all: list[Carrier] = [self.unicast]
        self._places: dict[int, Place] = {}
        for name in settings.carriers:
            self._add(maker_of(name)(settings))

    def _add(self, carrier: Carrier) -> None:
        for one in self.all:
            if one.name == carrier.name or (one.group_form and one.group_form == carrier.group_form):
                raise ValueError(f"carriers {one.name} and {carrier.name} are for the same: name one of them")
        self.all.append(carrier)

    def open(self, edge: Edge) -> None:
        """Each of them; why one cannot be used, says its `refusal`."""
        for carrier in self.all:
            carrier.open(edge)

    def close(self) -> None:
        for carrier in reversed(self.all):
            carrier.close()

    # --- which

    @property
    def overhead(self) -> int:
        """Bytes that segments have to leave for the headers of any of them."""
        return max([carrier.overhead for carrier in self.all])

    @property
    def several(self) -> bool:
        """Whether there is one that can send to several hosts at once."""
        return any(not carrier.refusal for carrier in self.all[1:])

    def pick(self, hosts: Collection[int], mtu: int, of_group: int) -> Carrier | None:
        """What carries segments of `mtu` bytes to these hosts: the first that may reach enough of them.

        Enough is one where packets name receivers, and `of_group` where a group has to be formed (0: none
        may be). None: unicast.
        """
        for carrier in self.all[1:]:
            enough = of_group if carrier.group_form else 1
            if not enough or carrier.refusal:
                continue
            reach = carrier.reach(hosts)
            if len(reach.hosts) >= enough and reach.mtu >= mtu:
                return carrier
        return None

    def number(self, name: str) -> int:
        """ValueError where it is not in use here."""
        for number, carrier in enumerate(self.all):
            if carrier.name == name:
                return number
        raise ValueError(f"{name} carries nothing here: start with --carrier {name}")

    def named(self, name: str) -> Carrier:
        """ValueError where it is not in use here."""
        return self.all[self.number(name)]

    def of_form(self, form: str) -> Carrier:
        """The one whose groups are addressed so. ValueError where none is in use here."""
        for carrier in self.all:
            if carrier.group_form and carrier.group_form == form:
                return carrier
        raise ValueError(f"no carrier here knows groups of {form or 'no form'}")

    def is_member(self, group: int) -> bool:
        """Whether this host is one, by any of them."""
        return any(carrier.group_form and carrier.is_member(group) for carrier in self.all)

    # --- hosts

    def set_address(self, host: int, address: SocketAddress | None) -> None:
        """Where a host's unicast segments go; None: nowhere."""
        self._place(host, replace(self._places.get(host, Place()), address=address))

    def set_name(self, host: int, name: str) -> None:
        """How descriptions of networks call a host; empty: not any more."""
        self._place(host, replace(self._places.get(host, Place()), name=name))

    def set_zone(self, host: int, zone: str) -> None:
        """The label of a host's zone; empty: it is in none."""
        self._place(host, replace(self._places.get(host, Place()), zone=zone))

    def _place(self, host: int, place: Place) -> None:
        known = place != Place()
        if known:
            self._places[host] = place
        else:
            self._places.pop(host, None)
        for carrier in self.all:
            carrier.set_host(host, place if known else None)

    # --- to look at

    def states(self) -> tuple[CarrierState, ...]:
        """Unicast's first, then the preferred ones."""
        return tuple([carrier.state() for carrier in self.all])

    def __iter__(self) -> Iterator[Carrier]:
        return iter(self.all)
