"""What all carriers have in common."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


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


class Carrier(Protocol):
    """Puts encoded segments on the wire. A target is a host's id, or a state id."""

    @property
    def refusal(self) -> str:
        """Why it cannot be used; empty where it can."""

    def send(self, target: int, datagrams: list[bytes]) -> None:
        """Sends them in their order; what has no way is dropped."""

    def state(self) -> CarrierState:
        """For inspection."""
