"""A burst to receivers of which the last is slower, in the time of the network in memory.

    python -m tests.unit.fabric.slow_receivers [--mb MEGABYTES] [--json]

prints whether the slower one leaves the group, by its share of the others' rate, and the MB/s at which the
others get the burst. A receiver with at least `STAYS` of the others' rate has to stay, and one with at most
`LEAVES` has to leave; otherwise the command reports it and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from itertools import product

from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.settings import StreamSettings

MIB = 1 << 20
PAYLOAD = bytes(10_000)
RATES = (20e6, 60e6)  # bytes per second of the link to each of the others
DELAYS = (0.0001, 0.002, 0.01)  # seconds, one way; a fifth of it more at random
RECEIVERS = (2, 4)
SHARES = (0.95, 0.8, 0.6, 0.4, 0.25, 0.1)
STAYS, LEAVES = 0.6, 0.1


@dataclass(frozen=True)
class Case:
    receivers: int
    rate: float
    delay: float
    share: float


@dataclass
class Outcome:
    """`left`: how often the slower one left. `rate`: MB/s of the others."""

    case: Case
    net: Network
    left: int
    rate: float

    @property
    def text(self) -> str:
        return f"{'leaves' if self.left else 'stays'}, {self.rate:.0f}"

    @property
    def problem(self) -> str:
        case = self.case
        wrong = (self.left and case.share >= STAYS) or (not self.left and case.share <= LEAVES)
        return f"{case}: {self.text}" if wrong else ""


def burst(case: Case, megabytes: float = 12.0) -> Outcome:
    """Multicasts a burst, until all but the slower receiver, which is the last host, have everything."""
    settings = StreamSettings(log_bytes=64 * MIB, hold_bytes=64 * MIB, unsent_bytes=1 << 30)
    weather = Weather(rate=case.rate, queue=4 * MIB, delay=case.delay, jitter=case.delay / 5)
    net = Network(1, weather, settings, multicast=True)
    *others, slower = range(2, 2 + case.receivers)
    net.slow[slower] = case.rate * case.share
    net.join_all(*others, slower)
    count = int(megabytes * 1e6) // len(PAYLOAD)
    for _ in range(count):
        net.publish(PAYLOAD)
    begun = net.now
    assert net.run_until(lambda: all(net.receivers[host].next == count for host in others), 120)
    peer = net.sender.peers.get(slower)
    assert peer is not None
    return Outcome(case, net, peer.left, megabytes / (net.now - begun))


def main() -> int:
    parser = argparse.ArgumentParser(description="Slower receivers in a group, in virtual time.")
    parser.add_argument("--mb", type=float, default=24.0, help="payload in 10^6 bytes")
    parser.add_argument("--json", action="store_true")
    way = parser.parse_args()
    if not way.json:
        print(f"| receivers, link, one way | {' | '.join(f'{share:g}' for share in SHARES)} |")
        print("| --- |" + " --- |" * len(SHARES))
    found: list[Outcome] = []
    for rate, delay, receivers in product(RATES, DELAYS, RECEIVERS):
        row = [burst(Case(receivers, rate, delay, share), way.mb) for share in SHARES]
        found += row
        if not way.json:
            head = f"{receivers}, {rate / 1e6:.0f} MB/s, {delay * 1e3:g} ms"
            print(f"| {head} | {' | '.join(one.text for one in row)} |", flush=True)
    if way.json:
        print(
            json.dumps([asdict(one.case) | {"left": one.left, "rate": one.rate} for one in found], indent=1)
        )
    problems = [one.problem for one in found if one.problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
