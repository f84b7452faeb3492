"""The loop from what is sent to shorter headers: `python -m examples.spark.pipeline`.

Ten hosts at five label switches send to sets of receivers that shift three times. Their telemetry goes to a
daemon; the pipeline on Spark makes tables and advice of it; a tree manager applies the advice while packets
are in flight. Switches are emulated and run p4/virtual_trees.p4; all else is what runs in a data centre.

Exit code 0 only if after each shift the pipeline comes within 10 % of the best strategy in hindsight and is
not above `adapt`, no packet is lost, and a replay gives the same advice.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.spark import common
from treecast.middleware.routing.virtual.candidates import Weights, labels_per_packet
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.spark_connectors.pipeline.planning import Settings
from treecast.spark_connectors.pipeline.running import EPOCHS, MEASURES, Pipeline, Ran, session
from treecast.spark_connectors.pipeline.showing import Shown
from treecast.spark_connectors.pipeline.tables import BRONZE, Tables
from treecast.spark_connectors.pipeline.windows import Windows

from .arms import LIMIT, Adapting, EmulatedHosts, in_hindsight
from .interests import PHASES, label_network, truth, wishes
from .picture import draw

NEAR = 1.1  # times the labels in hindsight
ATTEMPTS = 3  # rounds of a query that fails: a busy machine starts Python workers too slowly


class Demo:
    """One run. `packets` per round."""

    def __init__(self, options: argparse.Namespace, address: str, folder: Path, console: Console) -> None:
        self.options = options
        self.console = console
        self.network = label_network()
        self.settings = Settings(window=options.window, valid=3600.0)
        self.hosts = EmulatedHosts(self.network, address, folder, options.seed)
        self.adapting = Adapting(self.network, options.seed, min(300, options.packets // 2))
        self.tables = Tables(folder / "pipeline")
        self.pipeline = Pipeline(
            self.tables,
            address,
            self.settings,
            session(options.master),
            lambda line: console.print(f"  {line}"),
        )
        self.labels: dict[str, list[float]] = {"none": [], "adapt": [], "pipeline": [], "hindsight": []}
        self.decisions: list[str] = []
        self.writes = 0
        self.trials = 0
        self._sent_until = 0.0

    def run(self) -> None:
        self.pipeline.prepare()
        self.hosts.begin()
        for phase in PHASES:
            wanted = wishes(self.network, phase, self.options.seed)
            self.hosts.cloud.wanted = wanted
            weights = truth(wanted)
            hindsight = in_hindsight(self.network, weights, self.settings).labels
            self.console.print(f"- {phase} interests: {len(wanted)} sets of receivers")
            self._note(weights, hindsight)  # what the shift costs before anybody has seen it
            for _ in range(self.options.rounds):
                self._round()
                self._note(weights, hindsight)
        self._measure()

    def _note(self, weights: Weights, hindsight: float) -> None:
        """Notes the labels per packet of each arm's present trees."""
        self.labels["none"].append(labels_per_packet(RuleBase(self.network, LIMIT), weights))
        self.labels["adapt"].append(labels_per_packet(self.adapting.rules, weights))
        self.labels["pipeline"].append(labels_per_packet(self.hosts.manager.rules, weights))
        self.labels["hindsight"].append(hindsight)

    def _round(self) -> None:
        """Sends, lets the pipeline advise, and the manager follow. Advice rests on the records of this round:
        those of earlier ones have left the window.
        """
        time.sleep(max(0.0, self._sent_until + self.settings.window - time.time()))
        self.hosts.send(self.options.packets)
        self.adapting.look(self.hosts.cloud.observed())
        self._query((BRONZE, EPOCHS))
        verdicts = self.hosts.follow()
        self._sent_until = time.time()
        for verdict in verdicts:
            self.decisions.append(verdict.decision.value)
            self.writes += verdict.rule_writes if verdict.accepted is not None else 0
            self.console.print(f"  {verdict.decision.value}: {verdict.reason}")

    def _query(self, names: tuple[str, ...]) -> None:
        for _ in range(ATTEMPTS):
            ran = self.pipeline.round(names)
            if not any(one.fault for one in ran):
                break
        self._check(ran)

    def _measure(self) -> None:
        """Makes the tables for people: once, since nobody looks at them meanwhile."""
        self._query((BRONZE, MEASURES))
        report = Windows(self.tables).report()
        shown = {"talkers": 3, "links": 3, "forecasts": 3}
        for title, columns, rows in report.lists():
            if rows and title in shown:
                listed = Table(title=f"{title} of the window", box=None, header_style="bold")
                for column in columns:
                    listed.add_column(column)
                for row in rows[: shown[title]]:
                    listed.add_row(*map(str, row))
                self.console.print(listed)

    def _check(self, ran: list[Ran]) -> None:
        faults = [f"{one.query}: {one.fault}" for one in ran if one.fault]
        if faults:
            raise SystemExit(f"the pipeline failed: {'; '.join(faults)}")

    # --- results

    def ends(self) -> list[dict[str, Any]]:
        """Returns, for each phase, the labels per packet at its end, and the micro-batches until the pipeline
        came near hindsight (0: it was there at once).
        """
        found, points = [], self.options.rounds + 1
        for number, phase in enumerate(PHASES):
            part = slice(number * points, (number + 1) * points)
            labels = {arm: values[part] for arm, values in self.labels.items()}
            near = [
                at
                for at, (one, least) in enumerate(zip(labels["pipeline"], labels["hindsight"], strict=True))
                if one <= NEAR * least
            ]
            last = {arm: round(values[-1], 3) for arm, values in labels.items()}
            found.append({"phase": phase, **last, "rounds": near[0] if near else "never"})
        return found


def verdict(demo: Demo, lost: int, differ: int) -> list[str]:
    """Returns what is not as it has to be."""
    faults = []
    for end in demo.ends():
        if end["pipeline"] > NEAR * end["hindsight"]:
            faults.append(f"{end['phase']}: {end['pipeline']} labels, in hindsight {end['hindsight']}")
        if end["pipeline"] > end["adapt"]:
            faults.append(f"{end['phase']}: {end['pipeline']} labels, and adapt has {end['adapt']}")
    if lost:
        faults.append(f"{lost} packets did not reach each receiver once")
    if differ:
        faults.append(f"{differ} epochs are not the same when they are replayed")
    return faults


def table(ends: list[dict[str, Any]]) -> Table:
    shown = Table(title="labels per packet at the end of each phase", box=None, header_style="bold")
    columns = ("phase", "none", "adapt", "pipeline", "hindsight", "rounds")
    for column in columns:
        shown.add_column(column, justify="left" if column == "phase" else "right")
    for end in ends:
        shown.add_row(*(str(end[column]) for column in columns))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.spark.pipeline")
    parser.add_argument("--rounds", type=int, default=2, help="micro-batches in each phase")
    parser.add_argument("--packets", type=int, default=300, help="in each round")
    parser.add_argument(
        "--window", type=float, default=15.0, help="seconds of telemetry that advice rests on"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    with common.daemon([]) as (address, folder):
        console.print(f"- a daemon at {address} keeps telemetry and advice; Spark starts")
        demo = Demo(options, address, folder, console)
        demo.run()
        replayed = list(demo.pipeline.replay())
        demo.pipeline.round(["bronze"])  # what became of the last advice
        explained = Shown(demo.tables).explain()
    epochs = len({one.epoch for one in replayed})
    lost, differ = demo.hosts.lost(), sum(not one.equal for one in replayed)
    faults = verdict(demo, lost, differ)
    console.print(table(demo.ends()))
    console.print(
        f"- {epochs} epochs of {len(demo.settings.trials())} trials each; replayed: {differ} differ\n"
        f"- {len(demo.hosts.cloud.sent):,} packets, {lost} lost; {demo.writes} rules written or removed"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "spark_pipeline.png"
    draw(PHASES, options.rounds + 1, demo.labels, picture)
    console.print(f"picture: {picture}")
    for fault in faults:
        console.print(f"[bold red]not as it has to be:[/] {fault}")
    if options.json:
        rest = {
            "epochs": epochs,
            "differ": differ,
            "packets": len(demo.hosts.cloud.sent),
            "lost": lost,
        }
        decided = [one.decision for one in explained.decisions]
        print(
            json.dumps(
                {
                    **rest,
                    "writes": demo.writes,
                    "ends": demo.ends(),
                    "decisions": demo.decisions,
                    "explained": decided,
                    "picture": str(picture),
                }
            )
        )
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
