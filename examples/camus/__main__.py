"""`python -m examples.camus`: a market data feed through a P4 switch that filters it."""

from __future__ import annotations

import argparse

from .market import SUBSCRIBERS, compiled_rules, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.camus", description=__doc__)
    parser.add_argument("--packets", type=int, default=5000)
    parser.add_argument("--messages", type=int, default=1, help="the most messages of a packet; 1 to 12")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    compiled = compiled_rules()
    print(f"{compiled.rules} rules, {compiled.entries} entries, {len(compiled.groups)} multicast groups")
    found = run(options.packets, options.seed, options.messages)
    print(f"published: {found.packets:,} packets, {found.bytes_in:,} bytes")
    for port in SUBSCRIBERS:
        share = 100 * found.bytes_out[port] / found.bytes_in
        print(f"subscriber at port {port}: {found.copies[port]:,} packets, {share:.1f} % of the bytes")


if __name__ == "__main__":
    main()
