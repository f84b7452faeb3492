"""The duration of a replay over a bad path, in the time of the network in memory.

    python -m tests.unit.fabric.replays [--delay SECONDS] [--jitter SECONDS] [--rate BYTES] [--json]

prints the tables of docs/fabric.md: the median and the worst of several seeds, for shares of packets that are
lost, doubled and held back, and for messages of one packet, five and 45. A packet takes the delay and at most
the jitter more, behind a link of `rate` bytes per second that queues `QUEUE` seconds of packets and drops the
rest.

Each time is compared with the line's own time (`own_time`). A replay takes at most `MOST` times as long, by
the median of the seeds; otherwise the command reports it and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from itertools import count

from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.wire.segment import part_size

BYTES = 4_000_000
SHARES = (0.0199, 0.0975, 0.19)  # of two links of 1 %, 5 % and 10 % each
SIZES = (1_100, 6_000, 60_000)
SEEDS = 15
QUEUE = 0.02  # seconds of packets that may wait for the link
MOST = 3.0  # times the line's own time
_LOG = 1 << 30
_SETTINGS = StreamSettings(retain_bytes=_LOG, log_bytes=_LOG, unsent_bytes=_LOG, catch_up_bytes=1 << 20)


def own_time(share: float, size: int, delay: float, jitter: float, rate: float) -> float:
    """Returns the seconds that the line itself takes for `BYTES` in messages of `size`.

    payload / (rate x (1 - loss)), as each byte is sent that often on average; one round trip; and one more
    for each time that the worst packet is expected to be asked for. A request and its answer are lost alike,
    so that a round fails with q = 1 - (1 - loss)^2, and of n packets at least one needs more than k rounds
    with 1 - (1 - loss x q^k)^n; the sum of these over k is the expected number of rounds.
    """
    per_message = -(-size // part_size(_SETTINGS.mtu))
    packets = (BYTES // size) * per_message
    fails = 1 - (1 - share) ** 2
    rounds = 0.0
    for k in count():
        more = 1 - (1 - share * fails**k) ** packets
        rounds += more
        if more < 1e-6:
            break
    round_trip = 2 * (delay + jitter / 2)
    return (BYTES / (rate * (1 - share)) if rate else 0.0) + (1 + rounds) * round_trip


def replayed(
    share: float, size: int, seed: int, delay: float = 0.0005, jitter: float = 0.0002, rate: float = 0.0
) -> tuple[float, float]:
    """Returns the seconds until a late receiver has `BYTES`, and how many times these were sent.

    The receiver gets each message once, in order, and the account closes.
    """
    weather = Weather(share, share, share, delay, jitter, rate, int(rate * QUEUE))
    network = Network(seed, weather, _SETTINGS)
    for _ in range(BYTES // size):
        network.publish(bytes(size))
    network.run(0.1)
    begun = network.now
    late = network.join(3, Progress(0, 0))
    assert network.run_until(lambda: late.next == network.sender.end, 600)
    took, sent = network.now - begun, network.sender.counters.sent_bytes / BYTES
    network.assert_exactly_once(3)
    network.run(10.0)
    network.assert_accounts_close()
    return took, sent


def cells_of(share: float, way: argparse.Namespace) -> list[dict[str, float]]:
    """Returns the figures by size of messages."""
    cells = []
    for size in SIZES:
        runs = [replayed(share, size, seed, way.delay, way.jitter, way.rate) for seed in range(way.seeds)]
        took, sent = zip(*runs, strict=True)
        own = own_time(share, size, way.delay, way.jitter, way.rate)
        median = statistics.median(took)
        cells.append(
            {
                "share": share,
                "size": size,
                "median_s": median,
                "worst_s": max(took),
                "own_s": own,
                "ratio": median / own,
                "worst_ratio": max(took) / own,
                "sent": statistics.median(sent),
            }
        )
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(description="Replays over bad paths, in virtual time.")
    parser.add_argument("--delay", type=float, default=0.0005)
    parser.add_argument("--jitter", type=float, default=0.0002)
    parser.add_argument("--rate", type=float, default=12.5e6, help="bytes per second of the link")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", action="store_true")
    way = parser.parse_args()
    if not way.json:
        print(f"| share | {' | '.join(f'messages of {size:,} B' for size in SIZES)} | bytes sent |")
        print("| --- |" + " ---: |" * (len(SIZES) + 1))
    found = []
    for share in SHARES:
        cells = cells_of(share, way)
        found += cells
        if not way.json:
            texts = [
                f"{one['median_s']:.2f} s, {one['worst_s']:.2f}: {one['ratio']:.1f}x of {one['own_s']:.2f}"
                for one in cells
            ]
            times = [one["sent"] for one in cells]
            print(
                f"| {share:.0%} | {' | '.join(texts)} | {min(times):.2f}x to {max(times):.2f}x |", flush=True
            )
    if way.json:
        print(json.dumps(found, indent=1))
    slow = [one for one in found if one["ratio"] > MOST]
    for one in slow:
        print(
            f"{one['share']:.0%}, {one['size']} B: {one['ratio']:.1f}x the line's own time", file=sys.stderr
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
