"""The picture: all reports, those that passed the filter, the injected anomalies, and the findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .switches import LIMIT_CELLS, LIMIT_US, SWITCHES, WINDOW_S, Network

DULL, PASSED, TRUE, FOUND = "#c9ced3", "#d9822b", "#f4d9c6", "#1b7f79"


def draw(network: Network, reports: list[dict[str, Any]], rows: list[Any], seen: int, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(len(SWITCHES), 1, figsize=(11, 9.5), sharex=True, layout="constrained")
    for axis, switch in zip(axes, SWITCHES, strict=True):
        _switch(axis, switch, network, [one for one in reports if one["switch"] == switch], rows)
    axes[-1].set_xlabel("seconds")
    handles = [
        Line2D([], [], color=DULL, marker=".", ls="", label="report, left out at the daemon"),
        Line2D(
            [],
            [],
            color=PASSED,
            marker=".",
            ls="",
            label=f"report that passed ({seen:,} of {len(reports):,})",
        ),
        Patch(color=TRUE, label="made to go wrong"),
        Line2D([], [], color=FOUND, lw=4, label="window that Spark wrote as an anomaly"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(
        "How far reports are above what is of interest (1 is the limit of latency or queue)", fontsize=11
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _switch(axis: Any, switch: str, network: Network, reports: list[dict[str, Any]], rows: list[Any]) -> None:
    """Draws one switch: the larger of latency and depth, as shares of their limits."""
    for one in network.anomalies:
        if one.switch == switch:
            axis.axvspan(one.begin, one.end, color=TRUE, lw=0)
    height = [max(one["latency"] / LIMIT_US, one["depth"] / LIMIT_CELLS) for one in reports]
    for above, colour in ((False, DULL), (True, PASSED)):
        points = [
            (one["t"], level) for one, level in zip(reports, height, strict=True) if (level > 1) is above
        ]
        if points:
            axis.plot(*zip(*points, strict=True), ".", color=colour, ms=2.5)
    for row in rows:
        if row["switch"] == switch:
            axis.plot(
                [row["begin"], row["begin"] + WINDOW_S], [4.6, 4.6], color=FOUND, lw=4, solid_capstyle="butt"
            )
    axis.set_ylim(0, 5)
    axis.set_ylabel(switch, rotation=0, ha="right", va="center")
    axis.spines[["top", "right"]].set_visible(False)
