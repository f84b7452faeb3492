"""The interface of a carrier: a way to send the segments of a stream to many hosts at once.

    fabric/carriers/NAME.py    the carrier, and `make(settings)`, which returns one that is not open yet
    wire/NAME.py               the codec of its header, if it has one
    FabricSettings.carriers    the names in order of preference; `options[NAME]` is a carrier's own setting

The registry finds the module by the carrier's name (`registry`), so no other file has to name a new carrier.
Each stream uses one carrier, or unicast. Hosts that its carrier is not known to reach get unicast.

A carrier either names its receivers in each packet, or sends to groups that hosts join. A group needs a
number that all hosts agree on, a state id, which the coordinator allots; named receivers need none.

All methods are called in the event loop's thread, and none blocks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from treecast.middleware.fabric.sockets.udp import SocketAddress
from treecast.middleware.wire.content import Layout
from treecast.middleware.wire.segment import StreamKey

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge


class CarrierState(Struct, frozen=True):
    """The state of a carrier for `treecast doctor`. `refusal`: why it cannot be used; empty if it can."""

    name: str
    refusal: str = ""
    address: str = ""
    targets: int = 0  # hosts, or joined groups
    holders: int = 0  # sockets that hold memberships
    segmentation: bool = False  # UDP_SEGMENT
    coalescing: bool = False  # UDP_GRO
    one_by_one: tuple[str, ...] = ()  # addresses on whose path bursts are refused


class Place(Struct, frozen=True):
    """The known location of a host."""

    address: SocketAddress | None = None  # of its unicast segments
    name: str = ""  # the host's name in network descriptions
    zone: str = ""  # the label of its zone


class Reach(Struct, frozen=True):
    """The hosts of a set that a carrier may reach, and `mtu`, the longest segment on the path to all of them.
    Probes show whether they are really reached."""

    hosts: frozenset[int]
    mtu: int


class Copy(Struct, frozen=True):
    """A packet of a message, for operators. `address`: where it is sent, as text; empty if there is no way.
    `hosts`: the receivers that it is for."""

    address: str
    hosts: tuple[int, ...]


class Carrier(Protocol):
    """A carrier, opened and closed once."""

    @property
    def name(self) -> str:
        """The name in settings and reports."""

    @property
    def refusal(self) -> str:
        """Why it cannot be used, known once it is open; empty if it can."""

    @property
    def group_form(self) -> str:
        """How its groups are addressed, which members have to know; empty if packets name receivers.

        Carriers with the same form reach each other's members.
        """

    @property
    def overhead(self) -> int:
        """The maximum number of bytes before a segment in its packets."""

    @property
    def alike(self) -> bool:
        """Whether packets with the same beginning, up to the segment's stream, are unwrapped alike. If so,
        only the first of a burst is unwrapped. False if each packet has to be examined."""

    # --- open and close

    def open(self, edge: Edge) -> None:
        """Opens its sockets on the edge's loop. If they are not available, sets `refusal` instead of
        raising."""

    def close(self) -> None:
        """Ends memberships, and closes sockets and timers. Also called if `open` was not."""

    # --- knowledge of the network

    def set_host(self, host: int, place: Place | None) -> None:
        """Sets where a host is now; None: it has left."""

    def learn(self, rules: object) -> None:
        """Takes a description of the network or rules for it, as values of the carrier's own type. Once it
        returns, nothing more is sent by older rules. Raises ValueError if they are of another type, or older
        than the last."""

    def reach(self, hosts: Collection[int]) -> Reach:
        """The hosts among these that it may reach now."""

    # --- groups

    def join(self, group: int) -> None:
        """Joins a group. Raises ValueError if it is not a state id, and OSError with the reason if it cannot
        join."""

    def leave(self, group: int) -> None:
        """Leaves a group, if it was joined."""

    def is_member(self, group: int) -> bool:
        """Whether this host is a member."""
        ...

    # --- packets

    def check(self, group: int) -> None:
        """Raises ValueError if it is not a group (0 if packets name receivers), and OSError if nothing can be
        sent now."""

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """Sends datagrams in order to the hosts, which are members of the group if there are groups.

        Data that has no path is dropped and repaired later.
        """

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        """Returns where the segment of a received packet begins; -1 if there is none for this host.

        `buffer` belongs to the kernel until this returns. Discarded packets are reported to the edge
        (`complain`).
        """
        ...

    # --- inspection

    def observed(self) -> dict[tuple[str, ...], int]:
        """Packets by the names of the hosts they were for, if it counts them: input for whoever plans
        trees."""
        ...

    def state(self) -> CarrierState:
        """The current state."""
        ...


@runtime_checkable
class RuledCarrier(Carrier, Protocol):
    """A carrier that sends by rules of whoever programs its switches or routers (`SetRules` of the control
    service)."""

    def read_rules(self, version: int, encoded: bytes) -> object:
        """Returns the rules of this version, for `learn`. Raises ValueError if they are malformed."""

    def observed_bytes(self) -> dict[tuple[str, ...], int]:
        """Bytes of segments by the sets of hosts of `observed`; empty if it counts packets only."""
        ...


@runtime_checkable
class AddressedCarrier(Carrier, Protocol):
    """A carrier that can tell where its packets go."""

    def copies(self, key: StreamKey, group: int, hosts: Collection[int]) -> list[Copy]:
        """The packets that `send` would make of one segment of this stream. Changes nothing."""
        ...


@runtime_checkable
class AdvisingCarrier(Carrier, Protocol):
    """A carrier that knows what an operator should look at if its packets no longer arrive."""

    @property
    def advice(self) -> str:
        """The likely cause and the next step, as a clause."""


@runtime_checkable
class ContentCarrier(Carrier, Protocol):
    """A carrier for messages with content headers alone: its network looks at these."""

    @property
    def layout(self) -> Layout:
        """The fields that headers hold."""
        ...


class OwnGroup(Struct, frozen=True):
    """A group that a carrier keeps by itself. `name`: what it is for. `lost`: hosts that it has reached and
    no longer reaches; `reached`: the number of those that it does."""

    address: str
    name: str
    lost: tuple[int, ...]
    reached: int
    advice: str


@runtime_checkable
class GroupKeepingCarrier(Carrier, Protocol):
    """A carrier that uses a group without being asked to."""

    def own_group(self) -> OwnGroup | None:
        """The group, if it has one open."""


@runtime_checkable
class ZonedCarrier(Carrier, Protocol):
    """A carrier that also knows distances between hosts."""

    def apart(self, host: int, other: int) -> int:
        """How many zones a copy from `other` to `host` enters."""
        ...

    def nearest(self, origin: int, stream: int, members: Collection[int]) -> tuple[int, ...]:
        """The members of a stream to ask for repairs before its origin, in this order."""
        ...
