"""What a carrier is: a way to put the segments of a stream on the wire, for many hosts at once.

    fabric/carriers/NAME.py    the carrier, and `make(settings)`, which gives one that is not open yet
    wire/NAME.py               the codec of its header, where it has one
    FabricSettings.carriers    the names, the preferred first; `options[NAME]` is a carrier's own setting

The registry finds the module by the carrier's name (`registry`), so that no other file names a new one. Each
stream goes by one carrier, or by unicast; hosts that its carrier is not known to reach get unicast.

A carrier either names its receivers in each packet, or sends to groups that hosts become members of. Groups
need a number that all hosts agree about, a state id, which the coordinator allots; names need none.

Everything is called in the event loop's thread, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treecast.middleware.fabric.sockets.udp import SocketAddress

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge


class CarrierState(Struct, frozen=True):
    """What `treecast doctor` shows of a carrier. `refusal` says why it cannot be used; empty where it can."""

    name: str
    refusal: str = ""
    address: str = ""
    targets: int = 0  # hosts, or groups joined
    holders: int = 0  # sockets that hold memberships
    segmentation: bool = False  # UDP_SEGMENT
    coalescing: bool = False  # UDP_GRO
    one_by_one: tuple[str, ...] = ()  # addresses on whose path bursts are refused


class Place(Struct, frozen=True):
    """Where a host is, as far as that is known."""

    address: SocketAddress | None = None  # of its unicast segments
    name: str = ""  # by which descriptions of networks call it
    zone: str = ""  # the label of those near it


class Reach(Struct, frozen=True):
    """Those of a set of hosts that a carrier may reach, and `mtu`, the longest segment on the way to all of
    them. Whether they are reached indeed is found out by probes."""

    hosts: frozenset[int]
    mtu: int


class Carrier(Protocol):
    """From `open` to `close`, once."""

    @property
    def name(self) -> str:
        """As it is called in settings and reports."""

    @property
    def refusal(self) -> str:
        """Why it cannot be used, from `open` on; empty where it can."""

    @property
    def group_form(self) -> str:
        """How its groups are addressed, which members have to know; empty where packets name receivers.

        Carriers that address them alike reach each other's members.
        """

    @property
    def overhead(self) -> int:
        """Bytes before a segment in its packets, at most."""

    @property
    def alike(self) -> bool:
        """Whether packets that begin alike, up to the segment's stream, are unwrapped alike: then the first
        of a burst is unwrapped for all of them. False where a packet has to be seen to by itself."""

    # --- life

    def open(self, edge: Edge) -> None:
        """Opens its sockets on the edge's loop. What cannot be had is no error: `refusal` says why."""

    def close(self) -> None:
        """Memberships end, sockets and timers are closed. Called too where `open` was not."""

    # --- what is known

    def set_host(self, host: int, place: Place | None) -> None:
        """Where a host is now; None: it has left."""

    def learn(self, rules: object) -> None:
        """The network around, or rules for it: values of the carrier's own. From its return on nothing is
        sent by older ones. ValueError where they are none of its, or older than the last."""

    def reach(self, hosts: Collection[int]) -> Reach:
        """Whom of these it may reach now."""

    # --- groups

    def join(self, group: int) -> None:
        """Becomes a member. ValueError where it is no state id, OSError with the reason where it cannot."""

    def leave(self, group: int) -> None:
        """Is none any more; it need not have been one."""

    def is_member(self, group: int) -> bool:
        """Whether this host is one."""
        ...

    # --- packets

    def check(self, group: int) -> None:
        """ValueError where it is no group (0 where packets name receivers), OSError where nothing can be
        sent now."""

    def send(self, group: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """Sends them in their order to those hosts, who are members of the group where there are groups.

        What has no way is dropped, and repaired later.
        """

    def unwrap(self, buffer: memoryview, start: int, end: int) -> int:
        """Where the segment of a received packet begins; -1 where there is none for this host.

        `buffer` is the kernel's until this returns. What is let go is told to the edge (`complain`).
        """
        ...

    # --- to look at

    def observed(self) -> dict[tuple[str, ...], int]:
        """Packets by the names of the hosts that they were for, where it counts them: whoever lays trees
        learns from it."""
        ...

    def state(self) -> CarrierState:
        """How it stands now."""
        ...
