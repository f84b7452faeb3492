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
    """Puts encoded segments on the wire."""

    @property
    def refusal(self) -> str:
        """Why it cannot be used; empty where it can."""

    def state(self) -> CarrierState:
        """For inspection."""


class GroupCarrier(Carrier, Protocol):
    """To several hosts at once. A group is a state's; whom it reaches is found out by probes."""

    def __contains__(self, state: int) -> bool:
        """Whether the host is a member."""
        ...

    def join(self, state: int) -> None:
        """Becomes a member of the state's group. OSError with the reason where it cannot."""

    def leave(self, state: int) -> None:
        """Is none any more."""

    def check(self) -> None:
        """OSError where nothing can be sent now."""

    def send(self, target: int, datagrams: list[bytes], hosts: list[int]) -> None:
        """Sends them in their order to a state's group; `hosts` are those of it that are to get them.

        What has no way is dropped.
        """

    def forget(self, state: int) -> None:
        """Nothing more is sent to the state's group."""

    def close(self) -> None:
        """Memberships end."""
