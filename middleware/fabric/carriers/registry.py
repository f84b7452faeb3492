"""The carriers of a host: found by name, opened together, chosen per stream.

    carriers = Carriers(settings)                 # unicast, and those in the settings in order of preference
    carriers.open(edge)
    carriers.pick(hosts, mtu, 2)                  # for a stream: the first that reaches enough of its hosts
    carriers.named("ip-multicast").join(state)    # ValueError if it is not in use here
    carriers.of_form("ip-multicast").join(state)

A carrier is the module of its name in this package, or what `register` was given for the name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.udp import SocketAddress
from treecast.middleware.wire.segment import StreamKey

from .carrier import (
    AddressedCarrier,
    AdvisingCarrier,
    Carrier,
    CarrierState,
    ContentCarrier,
    Copy,
    GroupKeepingCarrier,
    OwnGroup,
    Place,
    RuledCarrier,
    ZonedCarrier,
)
from .unicast import Unicast

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

Make = Callable[[FabricSettings], Carrier]

_PACKAGE: Final = __name__.rpartition(".")[0]
_registered: Final[dict[str, Make]] = {}


def register(name: str, make: Make) -> None:
    """Registers a carrier that settings may name, replacing an existing one of that name."""
    _registered[name] = make


def maker_of(name: str) -> Make:
    """Returns a carrier's factory. Raises ValueError if there is no such carrier."""
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
    """The carriers of one host. A carrier's number is its index: 0 is unicast, which carries what others do
    not."""

    def __init__(self, settings: FabricSettings) -> None:
        """Raises ValueError if the settings name an unknown carrier, or two that address the same groups."""
        self.unicast = Unicast()
        self.all: list[Carrier] = [self.unicast]
        self._zoned: list[ZonedCarrier] = []
        # Found once: a look at a protocol's members takes as long as a message, and each message asks.
        self._content: ContentCarrier | None = None
        self._places: dict[int, Place] = {}
        for name in settings.carriers:
            self._add(maker_of(name)(settings))

    def _add(self, carrier: Carrier) -> None:
        for one in self.all:
            if one.name == carrier.name or (one.group_form and one.group_form == carrier.group_form):
                raise ValueError(f"carriers {one.name} and {carrier.name} are for the same: name one of them")
        self.all.append(carrier)
        if isinstance(carrier, ZonedCarrier):
            self._zoned.append(carrier)
        if self._content is None and isinstance(carrier, ContentCarrier):
            self._content = carrier

    def open(self, edge: Edge) -> None:
        """Opens each carrier; `refusal` says why one cannot be used."""
        for carrier in self.all:
            carrier.open(edge)

    def close(self) -> None:
        # Unicast last: the others send their farewells by its socket.
        for carrier in reversed(self.all):
            carrier.close()

    # --- selection

    @property
    def overhead(self) -> int:
        """Bytes that segments have to leave for the header of any carrier."""
        return max([carrier.overhead for carrier in self.all])

    @property
    def several(self) -> bool:
        """Whether any carrier can send to several hosts at once."""
        return any(not carrier.refusal for carrier in self.all[1:])

    def pick(
        self, hosts: Collection[int], mtu: int, of_group: int, *, by_content: bool = False
    ) -> Carrier | None:
        """Returns the first carrier that may reach enough of these hosts with segments of `mtu` bytes.

        Enough is one host if packets name receivers, and `of_group` if a group has to be formed (0: no group
        may be formed). `by_content`: the stream's messages have content headers, and are not for all of its
        hosts. None: unicast.
        """
        for carrier in self.all[1:]:
            if not _why_not(carrier, hosts, mtu, of_group, by_content):
                return carrier
        return None

    @property
    def content(self) -> ContentCarrier | None:
        """The carrier for messages with content headers, if one is in use and available."""
        carrier = self._content
        return carrier if carrier is not None and not carrier.refusal else None

    def why_none(
        self, hosts: Collection[int], mtu: int, of_group: int, *, by_content: bool = False
    ) -> dict[str, str]:
        """Returns why `pick` finds none, by carrier; empty if it finds one."""
        found = {
            carrier.name: _why_not(carrier, hosts, mtu, of_group, by_content) for carrier in self.all[1:]
        }
        return found if all(found.values()) else {}

    def copies(self, number: int, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        """The packets in which the carrier of this number would send a segment of the stream."""
        carrier = self.all[number]
        if not hosts:
            return []
        if isinstance(carrier, AddressedCarrier):
            return carrier.copies(key, group, hosts)
        return [Copy("", tuple(hosts))]

    def advice(self, name: str) -> str:
        """Returns what an operator should look at if packets of this carrier no longer arrive."""
        carrier = self.named(name)
        if isinstance(carrier, AdvisingCarrier):
            return carrier.advice
        return f"look at the network on the way, and at `treecast doctor` of both hosts for {name}."

    def own_groups(self) -> list[tuple[str, OwnGroup]]:
        """The groups that carriers keep by themselves, with the carriers' names."""
        keepers = [one for one in self.all if isinstance(one, GroupKeepingCarrier)]
        return [(one.name, group) for one in keepers if (group := one.own_group()) is not None]

    def apart(self, host: int, other: int) -> int:
        """How many zones a copy from `other` to `host` enters; 0 if no carrier knows distances."""
        return max([carrier.apart(host, other) for carrier in self._zoned], default=0)

    def nearest(self, origin: int, stream: int, members: Collection[int]) -> tuple[int, ...]:
        """The members of a stream to ask for repairs before its origin; none if no carrier knows
        distances."""
        for carrier in self._zoned:
            if not carrier.refusal:
                return carrier.nearest(origin, stream, members)
        return ()

    def number(self, name: str) -> int:
        """Returns a carrier's number. Raises ValueError if it is not in use here."""
        for number, carrier in enumerate(self.all):
            if carrier.name == name:
                return number
        raise ValueError(f"{name} carries nothing here: start with --carrier {name}")

    def named(self, name: str) -> Carrier:
        """Returns a carrier by name. Raises ValueError if it is not in use here."""
        return self.all[self.number(name)]

    def ruled(self) -> list[RuledCarrier]:
        """Returns the carriers that send by rules of a controller."""
        return [one for one in self.all if isinstance(one, RuledCarrier)]

    def of_form(self, form: str) -> Carrier:
        """Returns the carrier with this form of group. Raises ValueError if none is in use here."""
        for carrier in self.all:
            if carrier.group_form and carrier.group_form == form:
                return carrier
        raise ValueError(f"no carrier here knows groups of {form or 'no form'}")

    def is_member(self, group: int) -> bool:
        """Whether this host is a member of the group by any carrier."""
        return any(carrier.group_form and carrier.is_member(group) for carrier in self.all)

    # --- hosts

    def set_address(self, host: int, address: SocketAddress | None) -> None:
        """Sets where a host's unicast segments go; None: nowhere."""
        self._place(host, replace(self._places.get(host, Place()), address=address))

    def set_name(self, host: int, name: str) -> None:
        """Sets a host's name in network descriptions; empty removes it."""
        self._place(host, replace(self._places.get(host, Place()), name=name))

    def set_zone(self, host: int, zone: str) -> None:
        """Sets the label of a host's zone; empty: it is in none."""
        self._place(host, replace(self._places.get(host, Place()), zone=zone))

    def _place(self, host: int, place: Place) -> None:
        known = place != Place()
        if known:
            self._places[host] = place
        else:
            self._places.pop(host, None)
        for carrier in self.all:
            carrier.set_host(host, place if known else None)

    # --- inspection

    def states(self) -> tuple[CarrierState, ...]:
        """The states of all carriers: unicast first, then in order of preference."""
        return tuple([carrier.state() for carrier in self.all])

    def __iter__(self) -> Iterator[Carrier]:
        return iter(self.all)


def _why_not(carrier: Carrier, hosts: Collection[int], mtu: int, of_group: int, by_content: bool) -> str:
    """Returns why a carrier may not carry a stream to these hosts; empty if it may. See `Carriers.pick`."""
    enough = of_group if carrier.group_form else 1
    if carrier.refusal:
        return carrier.refusal
    if isinstance(carrier, ContentCarrier) is not by_content:
        return "its packets tell no content" if by_content else "the messages have no content header"
    if not enough:
        return "no group may be formed"
    reach = carrier.reach(hosts)
    if len(reach.hosts) < enough:
        return "it reaches none of the hosts" if enough == 1 else f"a group needs {enough} hosts"
    return "" if reach.mtu >= mtu else "segments are too long for its path"
