"""IP multicast in STARE's form that also tells the switch beside this host which states the host wants.

A topic's segments travel to the group of its state id with VNF id 0. Joining the group registers the state
with the switch: SUB-register, resent until SUB-ack and refreshed afterwards. Leaving the group removes it. If
no STARE switch answers, this is ip-multicast with a few additional packets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.memberships import Memberships
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import Subscriptions, SubState
from treecast.middleware.model.timers import NEVER, no_sooner
from treecast.middleware.wire import stare
from treecast.middleware.wire.stare import StareHeader, StareKind

from .carrier import Carrier
from .ip_multicast import IpMulticast, membership_advice

if TYPE_CHECKING:
    from treecast.middleware.fabric.edge import Edge

NAME: Final = "stare"
_MOST_ACKS: Final = 4096  # per turn; more are sent again


def make(settings: FabricSettings) -> Carrier:
    """See `registry`."""
    return Stare()


class Stare(IpMulticast):
    """The carrier of one host. Its groups are those of ip-multicast, so hosts with either carrier reach each
    other."""

    def __init__(self) -> None:
        super().__init__()
        self.name = NAME
        self._acks: Memberships
        self._subscriptions: Subscriptions
        self._wanted: set[int] = set()
        self._changed: list[int] = []
        self._heard: list[StareHeader] = []  # acknowledgements; some may be for others on this host
        self._timer: asyncio.Handle | None = None
        self._closed = False

    def open(self, edge: Edge) -> None:
        super().open(edge)
        self._acks = Memberships(edge.interface, edge.family)
        self._subscriptions = Subscriptions(StareSettings(), edge.random)

    def _moved(self) -> None:
        """Registers the states again where the interface is another one: another switch may be there."""
        before = self._interface
        super()._moved()
        assert self._edge is not None
        if (before.name, before.index) == (self._interface.name, self._interface.index):
            return
        self._acks.close()
        self._acks = Memberships(self._interface, self._edge.family)
        for state in self._wanted if not self.refusal else ():
            self._acks.join(stare.group(state, ipv6=self._ipv6, kind=StareKind.SUB_ACK))
        # As if joined now: what the switch before has acknowledged says nothing about this one.
        self._changed.extend(self._wanted)
        self._work_soon()

    def join(self, group: int) -> None:
        """Joins the state's group. Raises OSError also if it cannot receive acknowledgements."""
        super().join(group)
        self._acks.join(stare.group(group, ipv6=self._ipv6, kind=StareKind.SUB_ACK))
        self._wanted.add(group)
        self._changed.append(group)
        self._work_soon()

    def leave(self, group: int) -> None:
        super().leave(group)
        self._wanted.discard(group)
        self._changed.append(group)
        self._work_soon()

    @property
    def advice(self) -> str:
        others = membership_advice(ipv6=self._ipv6)
        return f"the STARE switch at that port may have lost the state; where there is none, {others}"

    @property
    def registered(self) -> bool:
        """Whether a switch has acknowledged any state wanted now."""
        return any(self._subscriptions.state(state) is SubState.REGISTERED for state in self._wanted)

    def _acknowledged(self, header: StareHeader) -> None:
        if len(self._heard) < _MOST_ACKS:
            self._heard.append(header)
        if len(self._heard) == 1:
            self._work_soon()

    # --- the switch

    def _work_soon(self) -> None:
        """Schedules `_work` once for this turn of the loop, however much has arrived."""
        assert self._edge is not None
        self._cancel()
        if not self._closed:
            self._timer = self._edge.loop.call_soon(self._work)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _work(self) -> None:
        """Takes the switch's acknowledgements, and sends it what has changed."""
        assert self._edge is not None
        now, subscriptions = self._edge.now(), self._subscriptions
        heard, self._heard = self._heard, []
        for header in heard:
            subscriptions.acknowledged(header, now)
        changed, self._changed = self._changed, []
        for state in changed:
            if state in self._wanted:
                subscriptions.want(state, now)
            else:
                subscriptions.unwant(state, now)
        subscriptions.work(now)
        for header in subscriptions.requests:
            self._tell(header)
        for change in subscriptions.changes:
            # Acknowledgements are listened for until the switch has confirmed the removal.
            if change.state is None and change.state_id not in self._wanted:
                self._acks.leave(stare.group(change.state_id, ipv6=self._ipv6, kind=StareKind.SUB_ACK))
        subscriptions.requests.clear()
        subscriptions.changes.clear()
        self._set_timer(now)

    def _tell(self, header: StareHeader) -> None:
        self._sender.send([stare.encode_header(header)], self._address(header.state, header.kind))

    def _set_timer(self, now: float) -> None:
        assert self._edge is not None
        at: float = self._subscriptions.next_deadline()
        self._timer = None
        if at < NEVER:
            self._timer = self._edge.loop.call_later(no_sooner(max(0.0, at - now)), self._work)

    def close(self) -> None:
        """Tells the switch once that the states are no longer wanted; a lost message leaves them
        registered."""
        self._closed = True
        self._cancel()
        if self._edge is not None:
            for header in self._subscriptions.farewell():
                self._tell(header)
            self._acks.close()
        super().close()
