"""How long a replay takes over a bad path, in the time of the network in memory.

    python -m tests.unit.fabric.replays [--delay SECONDS] [--jitter SECONDS]

prints the tables of docs/fabric.md: the median and the worst of several seeds, for shares of packets that are
lost, doubled and held back, and for messages of one packet, five and 45. A packet takes the delay and up to
the jitter more.
"""

from __future__ import annotations

import argparse
import statistics

from tests.unit.fabric.network import Network, Weather

from treecast.middleware.fabric.core.outcomes import Progress
from treecast.middleware.fabric.core.settings import StreamSettings

BYTES = 4_000_000
SHARES = (0.0199, 0.0975, 0.19)  # of two links of 1 %, 5 % and 10 % each
SIZES = (1_100, 6_000, 60_000)
SEEDS = 15
_LOG = 1 << 30
_SETTINGS = StreamSettings(retain_bytes=_LOG, log_bytes=_LOG, unsent_bytes=_LOG, catch_up_bytes=1 << 20)


def replayed(
    share: float, size: int, seed: int, delay: float = 0.0005, jitter: float = 0.0002
) -> tuple[float, float]:
    """Seconds until a late receiver has `BYTES`, and how many times these were sent.

    It has each message once, in order, and the account closes.
    """
    weather = Weather(loss=share, duplication=share, reordering=share, delay=delay, jitter=jitter)
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


def main() -> None:
    parser = argparse.ArgumentParser(description="Replays over bad paths, in virtual time.")
    parser.add_argument("--delay", type=float, default=0.0005)
    parser.add_argument("--jitter", type=float, default=0.0002)
    way = parser.parse_args()
    print(f"| share | {' | '.join(f'messages of {size:,} B' for size in SIZES)} | bytes sent |")
    print("| --- |" + " ---: |" * (len(SIZES) + 1))
    for share in SHARES:
        cells, times = [], []
        for size in SIZES:
            took, sent = zip(
                *(replayed(share, size, seed, way.delay, way.jitter) for seed in range(SEEDS)), strict=True
            )
            cells.append(f"{statistics.median(took):.2f} s, {max(took):.2f}")
            times.append(statistics.median(sent))
        print(f"| {share:.0%} | {' | '.join(cells)} | {min(times):.2f}x to {max(times):.2f}x |", flush=True)


if __name__ == "__main__":
    main()
