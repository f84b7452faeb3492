"""A WiFi scanner: prints a report after each period, a list of anonymised addresses with times as JSON.

python -m examples.mobility_tracking.scanner --place a --seed 1 --reports 30 --devices 200 --period 1 ...
"""

from __future__ import annotations

import argparse
import sys
import time

from .city import City
from .tracker import write_report


def main() -> None:
    parser = argparse.ArgumentParser(prog="scanner")
    parser.add_argument("--place", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--reports", type=int, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--period", type=float, required=True, help="seconds of the clock on the wall")
    parser.add_argument("--start", type=float, required=True, help="of the first period, Unix time")
    given = parser.parse_args()
    city = City(given.seed, given.reports, given.devices)
    for number in range(given.reports):
        time.sleep(max(given.start + (number + 1) * given.period - time.time(), 0))
        sys.stdout.buffer.write(write_report(city.report(given.place, number)))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
