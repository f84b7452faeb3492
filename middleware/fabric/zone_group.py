"""The multicast group of a zone: one copy of a relayed segment for all hosts of the zone that it reaches.

    239.255.0.0/16, or ff12::/32        the group, by a hash of the zone's label; the fabric's own port; TTL 1

Every host with the carrier `relay` joins the group of its zone. A host that has segments for several hosts of
its zone asks the group for a sign of life (HELLO by multicast, HERE by unicast). It uses the group for those
that answer, and unicast for the rest. A host that misses three questions in a row gets unicast again, until
it has answered for some time (`standing`). Questions are as long as the longest segment that was sent to the
group lately: a host at which such packets do not arrive gets unicast.

Two zones with the same hash on one network get each other's packets. Hosts discard those of streams that they
do not receive.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from treecast.middleware.fabric.sockets.memberships import Memberships
from treecast.middleware.fabric.sockets.udp import SocketAddress, UdpSocket
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import no_sooner

from .carriers.ip_multicast import prepare_sender, refusal_of
from .standing import Standing, StandingSettings

if TYPE_CHECKING:
    from .carriers.carrier import Carrier
    from .edge import Edge

_log = Log(__name__)

_IPV4: Final = bytes((239, 255))  # local scope (RFC 2365)
_IPV6: Final = bytes((0xFF, 0x12)) + bytes(10)  # transient, of the link
_SOON: Final = 0.05  # seconds between the first questions; doubles ...
_EVERY: Final = 1.0  # ... up to this
_LATELY: Final = 10  # questions
_IN_USE: Final = 5.0  # seconds after the last use during which questions are asked


def group_of(zone: tuple[str, ...], *, ipv6: bool) -> bytes:
    """The address of a zone's group."""
    digest = hashlib.blake2s("/".join(zone).encode(), digest_size=4).digest()
    return _IPV6 + digest if ipv6 else _IPV4 + digest[:2]


class ZoneGroup:
    """This host's end of the group of its zone. `ask` sends a question with a number to the group.

    `changed` is called when other hosts than before are reached.
    """

    def __init__(self, edge: Edge, ask: Callable[[int], None], changed: Callable[[], None]) -> None:
        self.reached: frozenset[int] = frozenset()  # hosts that have answered
        self.nonce = 0  # of the last question
        self.address: SocketAddress | None = None  # None: no group is open
        self._edge = edge
        self._ask = ask
        self._changed = changed
        self._end: UdpSocket | None = None
        self._memberships: Memberships | None = None
        self._longest = [0, 0]  # bytes of the longest datagram, since the last `_LATELY` questions and before
        self._asked = 0  # questions
        self._settings = StandingSettings()
        self._standings: dict[int, Standing] = {}  # by host that has ever answered
        self._used = 0.0
        self._wait = _SOON
        self._timer: asyncio.TimerHandle | None = None

    # --- open and close

    def open(self, zone: tuple[str, ...], carrier: Carrier) -> None:
        """Joins the group of a zone in place of an earlier one; `()`: none. Logs why it cannot."""
        self.close()
        edge = self._edge
        if not zone or refusal_of(edge.interface, edge.named):
            return
        ipv6 = edge.family == socket.AF_INET6
        packed = group_of(zone, ipv6=ipv6)
        name, port = socket.inet_ntop(edge.family, packed), edge.address[1]
        address: SocketAddress = (name, port, 0, edge.interface.index) if ipv6 else (name, port)
        sock = edge.new_socket()
        try:
            # Several fabric hosts of a machine may be in the same zone.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # No loopback: a host that forwards would otherwise receive its own copies.
            prepare_sender(sock, edge.interface, ttl=1, loopback=False)
            sock.bind(address)
            self._memberships = Memberships(edge.interface, edge.family)
            self._memberships.join(packed)
        except OSError as error:
            sock.close()
            _log.warning("no multicast inside the zone", zone="/".join(zone), error=error)
            return
        self.address = address
        self._end = edge.udp_end(sock)
        edge.watch(self._end, carrier)

    def close(self) -> None:
        """Leaves the group, if one was joined."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._memberships is not None:
            self._memberships.close()
            self._memberships = None
        if self._end is not None:
            self._edge.close_end(self._end)
            self._end = None
        self.address = None
        self._forget()
        self._standings.clear()

    # --- use

    def send(self, datagrams: list[bytes]) -> None:
        """Sends datagrams to the group, if one is open."""
        if self._end is not None and self.address is not None:
            self._longest[0] = max(self._longest[0], len(datagrams[0]))  # a burst's first is its longest
            self._end.send(datagrams, self.address)

    @property
    def longest(self) -> int:
        """Bytes of the longest datagram that was sent lately."""
        return max(self._longest)

    def use(self) -> None:
        """Notes that there is data for several hosts of the zone: from now on they are asked."""
        self._used = self._edge.now()
        if self._timer is None and self._end is not None:
            self._wait = _SOON
            self._look()

    def answered(self, host: int, nonce: int) -> bool:
        """Takes an answer. Returns whether it is one to the group's last question."""
        if not nonce or nonce != self.nonce:
            return False
        now = self._edge.now()
        standing = self._standings.setdefault(host, Standing(self._settings, now))
        if standing.answered(now):
            self._reach((*self.reached, host))
        return True

    @property
    def lost(self) -> list[int]:
        """The hosts that it has reached, and no longer reaches."""
        return sorted([host for host, standing in self._standings.items() if standing.lost])

    def _look(self) -> None:
        """Asks, and drops the hosts that have not answered. Stops if the group is not used."""
        self._timer = None
        now = self._edge.now()
        if now - self._used > _IN_USE:
            self._forget()
            return
        silent = {host for host, standing in self._standings.items() if standing.asked(now)}
        if silent:
            _log.warning("multicast does not reach hosts of the zone any longer", hosts=sorted(silent))
            self._reach(self.reached - silent)
        self.nonce = int(self._edge.random.random() * 2**62) + 1
        self._ask(self.nonce)
        self._asked += 1
        if self._asked % _LATELY == 0:
            # Two spans, so that the longest is forgotten after one to two of them and never in between.
            self._longest = [0, self._longest[0]]
        self._timer = self._edge.loop.call_later(no_sooner(self._wait), self._look)
        self._wait = min(2 * self._wait, _EVERY)

    def _reach(self, hosts: Iterable[int]) -> None:
        self.reached = frozenset(hosts)
        self._changed()

    def _forget(self) -> None:
        for standing in self._standings.values():
            standing.begins_anew(self._edge.now())
        self.nonce = 0
        if self.reached:
            self._reach(())
