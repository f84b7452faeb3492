"""Telemetry of switches: `python -m examples.spark.telemetry`.

Eight switches report hop latencies and queue depths, most of them normal. A filter at the daemon drops normal
reports before anything is sent. Spark counts the rest by switch and window, and writes windows with too many
into the topic `anomalies`, effectively once. The findings are compared with the injected anomalies.

Exit code 0 only if every anomaly was found, and no others.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.spark import common

from .picture import draw
from .switches import ENOUGH, LIMIT_CELLS, LIMIT_US, WINDOW_S, Anomaly, Network

FILTER = f"latency > {LIMIT_US} or depth > {LIMIT_CELLS} or last == true"
REPORTS = "switch string, t double, latency double, depth int, last boolean"
FOUND = "switch string, begin double, reports bigint, latency double, depth int"
START = 1_700_000_000  # of the reports' clock, Unix time


def anomalies(reports: Any) -> Any:
    """Windows of a switch with more than single slow packets in them."""
    from pyspark.sql import functions as f

    timed = reports.withColumn("time", f.timestamp_seconds(f.col("t") + START)).withWatermark(
        "time", "1 second"
    )
    windows = timed.groupBy("switch", f.window("time", f"{WINDOW_S} seconds")).agg(
        f.count("*").alias("reports"), f.max("latency").alias("latency"), f.max("depth").alias("depth")
    )
    begin = (f.unix_timestamp(f.col("window.start")) - START).cast("double").alias("begin")
    wanted = windows.where((f.col("reports") >= ENOUGH) & (f.col("switch") != "end"))
    return wanted.select(f.col("switch").alias("key"), "switch", begin, "reports", "latency", "depth")


def judge(network: Network, rows: list[Any]) -> tuple[list[Anomaly], list[Any]]:
    """Returns anomalies that no window reports, and windows that report none."""

    def meets(one: Anomaly, row: Any) -> bool:
        return (
            one.switch == str(row["switch"])
            and row["begin"] < one.end
            and one.begin < row["begin"] + WINDOW_S
        )

    missed = [one for one in network.anomalies if not any(meets(one, row) for row in rows)]
    return missed, [row for row in rows if not any(meets(one, row) for one in network.anomalies)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.spark.telemetry")
    parser.add_argument("--seconds", type=int, default=240, help="of reports")
    parser.add_argument("--rate", type=int, default=20, help="reports a second of each switch")
    parser.add_argument("--anomalies", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    network = Network(options.seed, options.seconds, options.rate, options.anomalies)
    reports = list(network.reports())
    with common.daemon(["telemetry", "anomalies"]) as (address, folder):
        fed = common.feed(address, "telemetry", ((one["switch"], one) for one in reports))
        # It ends the last windows: Spark closes one when it has seen later times.
        end = {"switch": "end", "t": options.seconds + 60.0, "latency": 0.0, "depth": 0, "last": True}
        common.feed(address, "telemetry", [("end", end)])
        console.print(f"- a daemon at {address} has {fed:,} reports of eight switches")
        spark = common.session("telemetry")
        source = common.source(spark, address, "telemetry", REPORTS, filter=FILTER)
        progress = common.run(anomalies(source), address, "anomalies", folder / "checkpoint")
        seen = sum(batch["numInputRows"] for batch in progress)
        console.print(f"- {seen:,} passed the filter at the daemon, [bold]{FILTER}[/bold]")
        rows = common.read_back(spark, address, "anomalies", FOUND)
        spark.stop()
    missed, wrong = judge(network, rows)
    told = len(network.anomalies) - len(missed)
    console.print(
        f"- {len(rows)} windows tell of {told} of {len(network.anomalies)} anomalies, {len(wrong)} of none"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "spark_telemetry.png"
    draw(network, reports, rows, seen, picture)
    console.print(f"picture: {picture}")
    if options.json:
        found = {
            "reports": fed,
            "passed": seen,
            "windows": len(rows),
            "missed": len(missed),
            "wrong": len(wrong),
        }
        print(json.dumps(found | {"anomalies": len(network.anomalies), "picture": str(picture)}))
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
