"""Scenarios: what is published where, over which network, and for how long, as in SNAPS' section IV.B."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from treecast.middleware.routing.network import Network

from ..figure import NotMeasured, Options

CLASSIC, FEDERATED, TREECAST = "classic", "federated", "treecast"
MODES: Final = (CLASSIC, FEDERATED, TREECAST)
GRACE: Final = 2.0  # seconds after the last message was published; what has not arrived then is lost
ACTIVE: Final = 0.95  # of the publisher's rate: a link with more carries every message at least once


class Wires(Struct, frozen=True):
    """Values of a link: bits per second each way, and the seconds that a link between routers takes."""

    rate: float
    delay: float


class Scenario(Struct, frozen=True):
    """A publisher at a host, subscribers at others, and what is published. `rate` in bits per second of
    payload, at the paper's scale; `size` in bytes. `scale`: what its rate and those of links are divided by.
    """

    name: str
    publisher: str
    subscribers: tuple[str, ...]
    size: int
    rate: float
    scale: float = 1.0

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.publisher, *[one for one in self.subscribers if one != self.publisher])


class Trial(Struct, frozen=True):
    """How scenarios are run. `wires`: at the paper's scale. `center`: the host of the classic server."""

    network: Network
    wires: Wires
    scenarios: tuple[Scenario, ...]
    center: str
    seconds: float

    def hosts(self) -> list[str]:
        """Returns all hosts of the scenarios, in the network's order."""
        used = {host for scenario in self.scenarios for host in scenario.hosts}
        names = [self.network.names[node] for node in self.network.hosts]
        return [name for name in names if name in used]


def chosen(found: Sequence[Scenario], options: Options) -> tuple[Scenario, ...]:
    """Returns the scenarios that are asked for, by default all. Raises NotMeasured for one that is not
    there.
    """
    names = [one.name for one in found]
    if wrong := [name for name in options.scenarios if name not in names]:
        raise NotMeasured(f"--scenario {wrong[0]!r}: expected {', '.join(names)}")
    return tuple([one for one in found if not options.scenarios or one.name in options.scenarios])
