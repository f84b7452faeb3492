"""The example in one process: the same VNFs and P4 program, on emulated links under a simulated clock."""

from __future__ import annotations

from typing import Any

import msgspec

from treecast.middleware.dataplane.emulator import LinkSettings
from treecast.middleware.evaluation.stare.network import StareNetwork
from treecast.middleware.routing.network import build
from treecast.middleware.wire.stare import FIRST_STATE
from treecast.middleware.wire.stare_signals import Update

from .city import PERIOD, City
from .places import VNFS
from .results import Found
from .tracker import write_report
from .vnf import Vnf

_SETTLED = 30.0  # simulated seconds after the last report
_LINK = LinkSettings(rate=100e6, delay=0.001, loss=0.01)


class Emulated:
    """A VNF's connection. Updates go to `vnf` once it is there."""

    def __init__(self, net: StareNetwork, host: int, ids: dict[str, int]) -> None:
        self.vnf: Vnf
        self._net = net
        self._ids = ids
        self._id = net.open(host, self._deliver)

    def _deliver(self, update: Update) -> None:
        self.vnf.shared(update.value)

    def state(self, name: str) -> int:
        """Returns the same id for all, as the coordinator gives them."""
        return self._ids.setdefault(name, FIRST_STATE + len(self._ids))

    def subscribe(self, state: int) -> None:
        self._net.subscribe(self._id, state)

    def publish(self, state: int, value: bytes) -> int:
        return self._net.publish(self._id, state, value)


def run(design: str, city: City, seed: int) -> tuple[list[Found], dict[str, Any]]:
    """Returns each VNF's findings, and the switch's counts. Periods are the city's own 20 s."""
    hosts = list(VNFS)
    star = build(["s", *hosts], [(0, n + 1) for n in range(len(hosts))], hosts=range(1, len(hosts) + 1))
    net = StareNetwork(star, design, seed, link=_LINK)
    ids: dict[str, int] = {}
    vnfs = {}
    for host, places in VNFS.items():
        for place in places:
            connection = Emulated(net, star.node(host), ids)
            vnfs[place] = connection.vnf = Vnf(place, connection)
    net.run(1.0)  # until all are subscribed
    start = net.now
    for number in range(city.reports):
        net.run(start + (number + 1) * PERIOD - net.now)
        for place, vnf in vnfs.items():
            vnf.report(write_report(city.report(place, number)))
    net.run(_SETTLED)
    [switch] = net.switches.values()
    return [vnf.found() for vnf in vnfs.values()], msgspec.to_builtins(switch.switch.stats())
