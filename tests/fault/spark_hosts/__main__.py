"""Spark with an executor on each of several hosts: each reads from its own host's daemon.

    python -m tests.fault.spark_hosts --hosts 3 --rows 300000

Hosts are network namespaces on one switch, with a daemon in each. Spark is a `local-cluster`; `java.py`
starts each executor in a host of its own. The driver and the leaders of all partitions are on the first host,
whose address is the only one that Spark is given. Rows are written, and read until the daemons have complete
replicas. The last read is checked against the counters of all daemons and links: an executor must have read
from its own host's daemon, and almost nothing over the network. The same run with localDaemon=false must fail
that check. Needs root. Exit code: 0 no problem, 1 a problem.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.fault.hosts.site import KAFKA, Amiss, Site

from .cluster import Cluster
from .counts import Read, counted, read_of
from .job import TASKS

READS = 6  # maximum number until replicas are complete
FLAGS = ["--kafka", f"0.0.0.0:{KAFKA}"]
OWN, GIVEN = "its own", "the driver's"  # the daemon that executors are told to read from


@dataclass
class Outcome:
    """The reads with one setting of the daemon that executors read from."""

    reads: dict[str, Read] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def run(folder: Path, *, hosts: int, rows: int, size: int = 100, python: str = sys.executable) -> Outcome:
    """Runs in a site of its own, which is removed before it returns."""
    outcome = Outcome()
    try:
        with Site(folder, hosts, python=python, flags=FLAGS) as site:
            site.create_topic("rows", TASKS * hosts, site.names[0])
            cluster = Cluster(site, folder, rows, size)
            cluster.ask("write")
            outcome.reads[OWN] = settled(site, cluster, rows, size)
            outcome.reads[GIVEN] = once(site, cluster, rows, size, local=False)
    except Amiss as error:
        outcome.problems.append(str(error))
        return outcome
    outcome.problems += outcome.reads[OWN].problems
    if not any("passed the link" in problem for problem in outcome.reads[GIVEN].problems):
        outcome.problems.append("reads from another host's daemon were not detected")
    return outcome


def once(site: Site, cluster: Cluster, rows: int, size: int, *, local: bool) -> Read:
    before = counted(site)
    said = cluster.ask("read", str(local).lower())
    counts = {host: count.since(before[host]) for host, count in counted(site).items()}
    return read_of(said, counts, rows, size)


def settled(site: Site, cluster: Cluster, rows: int, size: int) -> Read:
    """Returns the first read without a problem for which no daemon asked a leader, otherwise the last one.

    Replicas must be complete first. On a busy machine Spark may also run a task twice, which reads twice.
    """
    for _ in range(READS):
        read = once(site, cluster, rows, size, local=True)
        if not read.problems and not any(count.asked for count in read.counts.values()):
            return read
    read.problems.append(f"after {READS} reads: {read.counts}")
    return read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a row")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemons")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("network namespaces need root", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="treecast-spark-") as name:
        python = str(Path(given.python).absolute())
        outcome = run(Path(name), hosts=given.hosts, rows=given.rows, size=given.size, python=python)
    if given.json:
        print(json.dumps(asdict(outcome)))
    else:
        show(outcome, Console(width=110))
    return 1 if outcome.problems else 0


def show(outcome: Outcome, console: Console) -> None:
    table = Table(title="where executors have read")
    for column in ("told to read from", "executor", "host"):
        table.add_column(column)
    for column in (
        "rows",
        "bytes its host's daemon gave",
        "of them a replica's",
        "bytes over its host's link",
    ):
        table.add_column(column, justify="right")
    for daemon, read in outcome.reads.items():
        for host, count in read.counts.items():
            executor, rows = read.executors.get(host, ("-", 0))
            numbers = (rows, count.given, count.replica, count.network)
            table.add_row(daemon, executor, host, *(f"{number:,}" for number in numbers))
        table.add_section()
    console.print(table)
    for problem in outcome.problems:
        console.print(f"[red]{problem}", soft_wrap=True, highlight=False)
    if not outcome.problems:
        console.print("every executor has read from its own host's daemon")


if __name__ == "__main__":
    sys.exit(main())
