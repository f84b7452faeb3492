"""Pacing in virtual time, many seeded runs: fairness, loss, receivers that come, go and stall.

    python -m tests.unit.fabric.pacing_runs --seeds 300 [--only SCENARIO ...] [--seconds 400] [--json]

Each scenario (`pacing_scenarios`) runs with each seed, with the checks of `invariants` at every step. The
table shows for each figure the median, the 99th percentile, the worst with its seed, and the bound. Finished
runs are kept in `--keep` and skipped, so that a long series can be made in pieces: each ends after
`--seconds`. The exit status is 1 if a run broke an invariant or a bound, and the output tells how to repeat
it; it is 2 if runs are left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.unit.fabric.pacing_scenarios import BOUNDS, SCENARIOS, Measured

Run = dict[str, Any]  # from JSON


def run(scenario: str, seed: int) -> Run:
    """Returns the measured figures, and `broken`: the reason of a failure."""
    try:
        measured = SCENARIOS[scenario](seed)
    except AssertionError as error:
        return {"scenario": scenario, "seed": seed, "broken": f"{type(error).__name__}: {error}"[:400]}
    return {"scenario": scenario, "seed": seed, "measured": measured, "broken": beyond(scenario, measured)}


def beyond(scenario: str, measured: Measured) -> str:
    """Returns which figure is outside its bounds, or ""."""
    for name, (least, most) in BOUNDS[scenario].items():
        if not least <= measured[name] <= most:
            return f"{name} is {measured[name]:.3g}, and not from {least:.3g} to {most:.3g}"
    return ""


def _kept(path: Path | None) -> dict[tuple[str, int], Run]:
    found: dict[tuple[str, int], Run] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            one = json.loads(line)
            if "measured" in one:
                one["broken"] = beyond(one["scenario"], one["measured"])  # the bounds may have changed since
            found[one["scenario"], one["seed"]] = one
    return found


def table(runs: list[Run]) -> list[dict[str, object]]:
    """Returns a row for each figure of each scenario."""
    rows: list[dict[str, object]] = []
    for scenario, bounds in BOUNDS.items():
        mine = [one for one in runs if one["scenario"] == scenario]
        measured = [(one["seed"], one["measured"]) for one in mine if "measured" in one]
        for name, (least, most) in bounds.items():
            values = sorted((figures[name], seed) for seed, figures in measured)
            if not values:
                continue
            if least > 0:
                values.reverse()  # the smallest value is the worst
            rows.append(
                {
                    "scenario": scenario,
                    "figure": name,
                    "runs": len(mine),
                    "broken": sum(bool(one["broken"]) for one in mine),
                    "median": values[len(values) // 2][0],
                    "p99": values[int(0.99 * (len(values) - 1))][0],
                    "worst": values[-1][0],
                    "seed": values[-1][1],
                    "bound": least if least > 0 else most,
                }
            )
    return rows


def _print(rows: list[dict[str, object]]) -> None:
    print("| scenario | figure | runs | median | 99 % | worst | its seed | bound |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        figures = " | ".join(f"{row[name]:.3g}" for name in ("median", "p99", "worst"))
        name = f"{row['scenario']} | {row['figure']} | {row['runs']}"
        print(f"| {name} | {figures} | {row['seed']} | {row['bound']:.3g} |")


def main() -> int:
    parser = argparse.ArgumentParser(description="Seeded runs of pacing, in virtual time.")
    parser.add_argument("--seeds", type=int, default=50, help="seeds of each scenario")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of one piece")
    parser.add_argument("--keep", type=Path, help="a file of finished runs, which are not run again")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    kept = _kept(asked.keep)
    begun, last, runs, left = time.monotonic(), 0.0, [], 0
    wanted = [(name, asked.first + one) for one in range(asked.seeds) for name in asked.only]
    for number, place in enumerate(wanted):
        one = kept.get(place)
        if one is None:
            if time.monotonic() - begun > asked.seconds:
                left += 1
                continue
            one = run(*place)
            if asked.keep is not None:
                with asked.keep.open("a") as file:
                    file.write(json.dumps(one) + "\n")
        runs.append(one)
        if time.monotonic() - last > 5.0:
            last = time.monotonic()
            broken = sum(bool(each["broken"]) for each in runs)
            print(f"{number + 1} of {len(wanted)} runs, {broken} broken", file=sys.stderr, flush=True)
    return report(runs, left, asked.json)


def report(runs: list[Run], left: int, as_json: bool) -> int:
    broken = [one for one in runs if one["broken"]]
    if as_json:
        print(json.dumps({"table": table(runs), "broken": broken, "left": left}, indent=1))
    else:
        _print(table(runs))
    for one in broken:
        again = f"--only {one['scenario']} --first {one['seed']} --seeds 1"
        print(f"broken: {one['broken']}; again by {again}", file=sys.stderr)
    if left:
        print(f"{left} runs are left: the same command goes on where --keep is given", file=sys.stderr)
    return 1 if broken else 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
