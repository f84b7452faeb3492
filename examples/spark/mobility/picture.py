"""The picture: movements through one street over time, and the speeds found in all clouds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.mobility_tracking.city import PLACES, City


def draw(cities: Mapping[str, City], rows: list[Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import cm, colors
    from matplotlib.collections import LineCollection

    figure, (street, speeds) = plt.subplots(
        1, 2, figsize=(13, 5.2), width_ratios=[2.2, 1], layout="constrained"
    )
    first = next(iter(cities))
    mine = [row for row in rows if row["cloud"] == first]
    shade = colors.Normalize(0, 14)
    lines = [[(row["left"], PLACES[row["origin"]]), (row["arrived"], PLACES[row["target"]])] for row in mine]
    street.add_collection(
        LineCollection(lines, colors=cm.viridis(shade([row["speed"] for row in mine])), lw=0.9)
    )
    street.autoscale()
    street.set_yticks(list(PLACES.values()), [f"{name}, {metres:g} m" for name, metres in PLACES.items()])
    street.set_xlabel("seconds")
    street.set_title(f"{first}: {len(mine)} ways between scanners, as Spark found them", fontsize=11)
    figure.colorbar(cm.ScalarMappable(shade, "viridis"), ax=street, label="m/s", pad=0.01)
    bins = [step * 0.5 for step in range(31)]
    true = [trip.speed for city in cities.values() for trip in city.trips]
    speeds.hist(true, bins, color="#c9ced3", label=f"true ({len(true):,})")
    found = [row["speed"] for row in rows]
    speeds.hist(found, bins, histtype="step", color="#1b7f79", lw=1.6, label=f"found ({len(found):,})")
    speeds.set_xlabel("m/s")
    speeds.set_title(f"speeds in all {len(cities)} clouds", fontsize=11)
    speeds.legend(frameon=False)
    for axis in (street, speeds):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
