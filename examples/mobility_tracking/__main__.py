"""The paper's use case: `python -m examples.mobility_tracking`, as root; with `--emulate` as any user.

Four WiFi scanners along a street report every 20 s (`--period` shortens it) the devices they saw: 10 to 50
anonymised addresses with times, as JSON. A VNF beside each shares its sightings under a state of its own and
subscribes to the other three's, so each infers on its own which devices came to it, from where, and how fast.
Three hosts with real daemons, four VNFs, one P4 switch of the chosen design, in network namespaces. With
`--emulate` the same VNFs, middleware and switch run in one process, on in-memory links that lose one packet
in a hundred, under a simulated clock.

Exit code 0 only if all movements between scanners were found, and no others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from . import emulation
from .city import PERIOD, City
from .places import VNFS
from .results import Found, Judged, draw, judge, table

if TYPE_CHECKING:
    from treecast.middleware.dataplane.lab.lab import Lab

_LEAD = 2.0  # seconds until the first period begins
_ENDING = 120.0


def run_lab(options: argparse.Namespace, console: Console) -> tuple[list[Found], dict[str, object]]:
    """Returns each VNF's findings, and the switch's counts."""
    from treecast.middleware.dataplane.lab.lab import Lab  # needs the extra `lab`

    from .network import description

    with (
        tempfile.TemporaryDirectory(prefix="treecast-mobility-") as folder,
        Lab.up(description(options.design)) as lab,
    ):
        return _in_lab(lab, Path(folder), options, console)


def _in_lab(
    lab: Lab, folder: Path, options: argparse.Namespace, console: Console
) -> tuple[list[Found], dict[str, object]]:
    from .network import line_of, program_switch, start_daemons, start_vnf, switch_counts

    if options.design != "bridge":
        program_switch(lab, options.design)
        console.print(f"- the switch runs p4/stare_{options.design}.p4")
    start_daemons(lab, folder)
    console.print("- three daemons serve")
    scanner = ["--seed", str(options.seed), "--reports", str(options.reports)]
    scanner += ["--devices", str(options.devices), "--period", str(options.period)]
    vnfs = [start_vnf(lab, host, place, scanner) for host, places in VNFS.items() for place in places]
    for vnf in vnfs:
        line_of(vnf)
    seconds = options.period * options.reports
    console.print(f"- four VNFs are subscribed; {options.reports} reports each, in {seconds:g} s")
    start = f"{time.time() + _LEAD}\n".encode()
    for vnf in vnfs:
        assert vnf.stdin is not None
        vnf.stdin.write(start)
        vnf.stdin.flush()
    lines = [line_of(vnf, _LEAD + seconds + _ENDING) for vnf in vnfs]
    return [msgspec.json.decode(line, type=Found) for line in lines], switch_counts(lab, options.design)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.mobility_tracking")
    parser.add_argument("--design", choices=["register", "embedded", "bridge"], default="register")
    parser.add_argument("--period", type=float, default=1.0, help=f"seconds for {PERIOD:g} of the city's")
    parser.add_argument("--reports", type=int, default=30)
    parser.add_argument("--devices", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    parser.add_argument("--emulate", action="store_true", help="in this process, with a simulated clock")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    city = City(options.seed, options.reports, options.devices)
    if options.emulate:
        if options.design == "bridge":
            parser.error("--emulate: the emulator has P4 switches, no bridges")
        found, counts = emulation.run(options.design, city, options.seed)
        console.print(
            f"- emulated: {options.reports} reports each, in {options.reports * PERIOD:g} simulated s"
        )
    else:
        found, counts = run_lab(options, console)
    judged = [judge(one, city) for one in found]
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "mobility_tracking.png"
    draw(judged, city, picture)
    if options.json:
        print(json.dumps({"vnfs": msgspec.to_builtins(judged), "picture": str(picture)}))
    else:
        console.print(table(judged, counts))
        console.print(f"picture: {picture}")
    return 0 if all(map(_good, judged)) else 1


def _good(one: Judged) -> bool:
    return one.right == one.trips and not one.wrong


if __name__ == "__main__":
    raise SystemExit(main())
