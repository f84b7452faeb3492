"""Mobility tracking in Spark: `python -m examples.spark.mobility`.

Many edge clouds, each with the street of `examples.mobility_tracking`: four WiFi scanners that report every
20 seconds the devices they saw. All reports go into one topic. Spark follows each device from scanner to
scanner, with its last sighting as state, and writes each movement with its speed into the topic `movements`,
effectively once. The findings are compared with the truth.

Exit code 0 only if all movements were found, and no others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.mobility_tracking.city import PLACES, City, Trip
from examples.spark import common

from .picture import draw
from .tracking import MOVEMENTS, movements

SIGHTINGS = "cloud string, place string, address string, time double"
Way = tuple[str, str, str, str]  # cloud, address, origin, target


def sightings(cities: Mapping[str, City]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the reports of all clouds in order, keyed by device."""
    for number in range(max(city.reports for city in cities.values())):
        for cloud, city in cities.items():
            for place in PLACES:
                for one in city.report(place, number):
                    value = {"cloud": cloud, "place": place, "address": one.address, "time": one.time}
                    yield one.address, value


def judge(cities: Mapping[str, City], rows: list[Any]) -> tuple[dict[Way, Trip], dict[Way, Any], float]:
    """Ways that are true, ways that were found, and the mean error of their speeds as a share."""
    true = {
        (cloud, trip.address, trip.origin, trip.target): trip
        for cloud, city in cities.items()
        for trip in city.trips
    }
    found = {(row["cloud"], row["address"], row["origin"], row["target"]): row for row in rows}
    errors = [
        abs(found[way]["speed"] - trip.speed) / trip.speed for way, trip in true.items() if way in found
    ]
    return true, found, sum(errors) / len(errors) if errors else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.spark.mobility")
    parser.add_argument("--clouds", type=int, default=12)
    parser.add_argument("--reports", type=int, default=30, help="of each scanner, one for 20 seconds")
    parser.add_argument("--devices", type=int, default=120, help="that move in each cloud")
    parser.add_argument("--rows", type=int, default=8000, help="sightings of one micro-batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    cities = {
        f"cloud {number}": City(options.seed * 1000 + number, options.reports, options.devices)
        for number in range(1, options.clouds + 1)
    }
    with common.daemon(["sightings", "movements"]) as (address, folder):
        fed = common.feed(address, "sightings", sightings(cities))
        console.print(f"- a daemon at {address} has {fed:,} sightings of {options.clouds} edge clouds")
        spark = common.session("mobility")
        limit = {"maxOffsetsPerTrigger": str(options.rows)}
        source = common.source(spark, address, "sightings", SIGHTINGS, **limit)
        progress = common.run(movements(source, PLACES), address, "movements", folder / "checkpoint")
        batches = [batch for batch in progress if batch["numInputRows"]]
        rows = common.read_back(spark, address, "movements", MOVEMENTS.replace("key string, ", ""))
        spark.stop()
    true, found, error = judge(cities, rows)
    missed, wrong, twice = true.keys() - found.keys(), found.keys() - true.keys(), len(rows) - len(found)
    console.print(
        f"- in {len(batches)} micro-batches Spark found {len(found)} of {len(true)} ways, "
        f"{len(wrong)} wrong ones, {twice} twice; speeds are off by {error:.1%}"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "spark_mobility.png"
    draw(cities, rows, picture)
    console.print(f"picture: {picture}")
    if options.json:
        counts = {
            "sightings": fed,
            "ways": len(true),
            "missed": len(missed),
            "wrong": len(wrong),
            "twice": twice,
        }
        print(json.dumps(counts | {"batches": len(batches), "speed error": error, "picture": str(picture)}))
    return 1 if missed or wrong or twice else 0


if __name__ == "__main__":
    raise SystemExit(main())
