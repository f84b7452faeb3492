"""A result as pictures: lines or stacked bars, a panel per network or density."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .figure import Plot, Result, Row

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b", "#79706e")
_LABEL_COLOURS = {"hops": "#4c78a8", "stops": "#e45756", "trees": "#54a24b"}


def draw(result: Result, folder: Path) -> list[Path]:
    """The pictures of a result; none where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    files = []
    for number, plot in enumerate(result.plots, 1):
        suffix = f"-{number}" if len(result.plots) > 1 else ""
        path = folder / f"{result.name}{suffix}.png"
        _draw(result, plot, path)
        files.append(path)
    return files


def _draw(result: Result, plot: Plot, path: Path) -> None:
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys(str(row[plot.panel]) for row in result.rows)) if plot.panel else [""]
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(5.2 * columns, 3.9 * lines), squeeze=False, layout="constrained"
    )
    for number, axis in enumerate(axes.flat):
        if number >= len(panels):
            axis.set_visible(False)
            continue
        rows = [row for row in result.rows if not plot.panel or str(row[plot.panel]) == panels[number]]
        (_bars if plot.kind == "bars" else _lines)(axis, plot, rows)
        axis.set_title(panels[number], fontsize=10)
        axis.grid(alpha=0.3)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, max(1, len(labels))), fontsize=9)
    figure.suptitle(f"{result.name}: {result.title}", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(axis: Any, plot: Plot, rows: list[Row]) -> None:
    for number, name in enumerate(dict.fromkeys(str(row[plot.series]) for row in rows)):
        mine = [row for row in rows if str(row[plot.series]) == name]
        axis.plot(
            [row[plot.x] for row in mine],
            [row[plot.y] for row in mine],
            marker=("o", "s", "^", "v", "D")[number % 5],
            markersize=4,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle="-" if number < len(_COLOURS) else "--",
            label=name,
        )
    axis.set_xlabel(plot.x)
    axis.set_ylabel(plot.y)
    axis.set_ylim(bottom=0)


def _bars(axis: Any, plot: Plot, rows: list[Row]) -> None:
    """Horizontal bars, one per row; `stacked` columns on top of each other, else `y`."""
    names = [
        f"{row[plot.series]} {row[plot.x]}" if plot.x != plot.series else str(row[plot.x]) for row in rows
    ]
    places = range(len(rows))
    left = [0.0] * len(rows)
    for number, column in enumerate(plot.stacked or (plot.y,)):
        amounts = [float(row[column]) for row in rows]
        axis.barh(
            places, amounts, left=left, color=_LABEL_COLOURS.get(column, _COLOURS[number]), label=column
        )
        left = [a + b for a, b in zip(left, amounts, strict=True)]
    axis.set_yticks(list(places), names, fontsize=max(4, min(9, 260 // max(1, len(rows)))))
    axis.invert_yaxis()
    axis.set_xlabel(plot.y)
