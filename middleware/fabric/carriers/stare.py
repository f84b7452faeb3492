"""STARE's carrier: ip-multicast in STARE's form, and the switch is told which states this host wants.

A topic's segments travel to the group of its state id with VNF id 0. Joining the group registers the state
with the switch beside this host: SUB-register, sent again until SUB-ack and refreshed; leaving it removes it.
Where no switch of STARE's answers, this is ip-multicast with a few packets more.
"""

from __future__ import annotations

import socket
from typing import Final

from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import Subscriptions, SubState
from treecast.middleware.fabric.stare.timers import Random
from treecast.middleware.wire import stare
from treecast.middleware.wire.stare import StareHeader, StareKind

from .interfaces import Interface
from .memberships import Memberships
from .sockets import SocketAddress, UdpSocket

NAME: Final = "stare"


class Stare:
    """The switch's side of the groups: `work` after every call, and at `next_deadline`."""

    def __init__(self, interface: Interface, sender: UdpSocket, random: Random) -> None:
        """`sender` sends multicast by the interface."""
        self._interface = interface
        self._sender = sender
        self._ipv6 = sender.sock.family == socket.AF_INET6
        self._acks = Memberships(interface, sender.sock.family)
        self._subscriptions = Subscriptions(StareSettings(), random)
        self._wanted: set[int] = set()
        self._changed: list[int] = []

    def join(self, state: int) -> None:
        """The host is a member of the state's group. OSError where it may not hear the acknowledgement."""
        self._acks.join(stare.group(state, ipv6=self._ipv6, kind=StareKind.SUB_ACK))
        self._wanted.add(state)
        self._changed.append(state)

    def leave(self, state: int) -> None:
        self._wanted.discard(state)
        self._changed.append(state)

    def subscription(self, state: int) -> SubState | None:
        """How it stands with the switch; None where the state is not wanted."""
        return self._subscriptions.state(state)

    @property
    def registered(self) -> bool:
        """Whether a switch has acknowledged anything that is wanted now."""
        return any(self._subscriptions.state(state) is SubState.REGISTERED for state in self._wanted)

    def acknowledged(self, header: StareHeader, now: float) -> None:
        """A SUB-ack has come; it may be for others on this host."""
        self._subscriptions.acknowledged(header, now)

    def work(self, now: float) -> None:
        """Sends what the switch is to be told."""
        subscriptions = self._subscriptions
        for state in self._changed:
            if state in self._wanted:
                subscriptions.want(state, now)
            else:
                subscriptions.unwant(state, now)
        self._changed.clear()
        subscriptions.work(now)
        for header in subscriptions.requests:
            self._sender.send([stare.encode_header(header)], self._address(header))
        for change in subscriptions.changes:
            if change.state is None and change.state_id not in self._wanted:
                ack = stare.group(change.state_id, ipv6=self._ipv6, kind=StareKind.SUB_ACK)
                self._acks.leave(ack)
        subscriptions.requests.clear()
        subscriptions.changes.clear()

    def _address(self, header: StareHeader) -> SocketAddress:
        packed = stare.group(header.state, ipv6=self._ipv6, kind=header.kind)
        group = socket.inet_ntop(self._sender.sock.family, packed)
        return (group, stare.PORT, 0, self._interface.index) if self._ipv6 else (group, stare.PORT)

    def next_deadline(self) -> float:
        return 0.0 if self._changed else self._subscriptions.next_deadline()

    def close(self) -> None:
        """The switch is told once; what it does not hear it keeps."""
        for header in self._subscriptions.farewell():
            self._sender.send([stare.encode_header(header)], self._address(header))
        self._acks.close()
