"""A result as pictures: lines, boxes, columns, bars, dots, a coloured grid, scatter; a panel per network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .figure import Plot, Result, Row

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b", "#79706e")
_LABEL_COLOURS = {"hops": "#4c78a8", "stops": "#e45756", "trees": "#54a24b"}
_MARKERS = ("o", "s", "^", "v", "D")
# Picture formats: for screen, and for print. Without dates, the same picture has the same bytes.
_METADATA: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_WIDE = 50.0  # bars that differ by more than this are drawn on a logarithmic axis


def draw(result: Result, folder: Path) -> list[Path]:
    """Returns the pictures of a result; none if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "treecast"
    matplotlib.rcParams["pdf.fonttype"] = 42  # TrueType: journals refuse matplotlib's own kind of fonts
    files: list[Path] = []
    for number, plot in enumerate(result.plots, 1):
        suffix = f"-{number}" if len(result.plots) > 1 else ""
        paths = [folder / f"{result.name}{suffix}{kind}" for kind in _METADATA]
        _draw(result, plot, paths)
        files += paths
    return files


def _draw(result: Result, plot: Plot, paths: list[Path]) -> None:
    import matplotlib.pyplot as plt

    needed = [column for column in (plot.series, plot.x, plot.panel) if column]
    drawn = [row for row in result.rows if all(column in row for column in needed)]
    panels = list(dict.fromkeys(str(row[plot.panel]) for row in drawn)) if plot.panel else [""]
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    names = dict.fromkeys(str(row[plot.series]) for row in drawn)
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    width, height = 5.2 * columns, _height(plot, drawn) * lines
    figure, axes = plt.subplots(lines, columns, figsize=(width, height), squeeze=False, layout="constrained")
    for number, axis in enumerate(axes.flat):
        if number >= len(panels):
            axis.set_visible(False)
            continue
        rows = [row for row in drawn if not plot.panel or str(row[plot.panel]) == panels[number]]
        _KINDS[plot.kind](axis, plot, rows, colours)
        axis.set_title(f"{plot.panel} {panels[number]}" if panels[number].isdigit() else panels[number])
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        room = int(width / (0.5 + 0.085 * max(map(len, found))))
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=max(1, room), fontsize=9
        )
    figure.suptitle(plot.title or f"{result.name}: {result.title}", fontsize=11, wrap=True)
    for path in paths:
        figure.savefig(path, dpi=110, metadata=_METADATA[path.suffix])
    plt.close(figure)


def _height(plot: Plot, rows: list[Row]) -> float:
    """Returns the height of a panel in inches: names listed downwards need room."""
    if plot.kind not in ("dots", "grid"):
        return 3.9
    return 1.2 + 0.24 * len({row[plot.y if plot.kind == "grid" else plot.x] for row in rows})


def _lines(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws lines, earlier ones broader, so that coinciding lines are all visible."""
    names = list(dict.fromkeys(str(row[plot.series]) for row in rows))
    for number, name in enumerate(names):
        mine = [row for row in rows if str(row[plot.series]) == name]
        under = (len(names) - number) / len(names)
        axis.plot(
            [row[plot.x] for row in mine],
            [row[plot.y] for row in mine],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=3 + 4 * under,
            linewidth=1 + 2 * under,
            color=colours[name],
            linestyle="-" if number < len(_COLOURS) else "--",
            label=name,
        )
        if plot.error:
            places, middles = [row[plot.x] for row in mine], [row[plot.y] for row in mine]
            errors = [row[plot.error] for row in mine]
            axis.errorbar(places, middles, errors, fmt="none", ecolor=colours[name], capsize=3)
    axis.set_xlabel(plot.labels[0] or plot.x)
    axis.set_ylabel(plot.labels[1] or plot.y)
    if plot.log:
        axis.set_xscale("log")
        axis.set_yscale("log")
    elif plot.zero and all(row[plot.y] >= 0 for row in rows):
        axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)


def _boxes(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws boxes beside each other at each x."""
    for name, place, width, row in _beside(plot, rows):
        low, first, middle, third, high = (float(row[column]) for column in plot.stacked)
        box = {"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high, "fliers": []}
        fill = {"facecolor": colours[name], "alpha": 0.75, "linewidth": 0.6}
        lines = {"medianprops": {"color": "black"}, "whiskerprops": {"linewidth": 0.8}}
        axis.bxp([box], positions=[place], widths=width, patch_artist=True, boxprops=fill, **lines)
    _under(axis, plot, rows, colours)
    if plot.log and all(row[plot.stacked[0]] > 0 for row in rows):
        axis.set_yscale("log")


def _columns(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws standing bars beside each other at each x."""
    for name, place, width, row in _beside(plot, rows):
        axis.bar([place], [row[plot.y]], width=width, color=colours[name], zorder=2)
    _under(axis, plot, rows, colours)


def _beside(plot: Plot, rows: list[Row]) -> Iterator[tuple[str, float, float, Row]]:
    """Yields series, place and width for each row of boxes or columns."""
    names = list(dict.fromkeys(str(row[plot.series]) for row in rows))
    places = list(dict.fromkeys(str(row[plot.x]) for row in rows))
    width = 0.8 / len(names)
    for row in rows:
        shift = names.index(str(row[plot.series])) - (len(names) - 1) / 2
        yield str(row[plot.series]), places.index(str(row[plot.x])) + shift * width, 0.9 * width, row


def _under(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Writes the names of x, and gives the series to the legend."""
    places = list(dict.fromkeys(str(row[plot.x]) for row in rows))
    axis.set_xticks(range(len(places)), places, fontsize=8)
    axis.set_xlim(-0.5, len(places) - 0.5)
    axis.set_ylabel(plot.labels[1] or plot.y)
    for name in dict.fromkeys(str(row[plot.series]) for row in rows):
        axis.scatter([], [], marker="s", color=colours[name], label=name)
    axis.grid(axis="y", alpha=0.3)


def _bars(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws horizontal bars, one per row; `stacked` columns on top of each other, else `y`, a colour per
    series.
    """
    apart = plot.x != plot.series
    names = [f"{row[plot.series]} {row[plot.x]}" if apart else str(row[plot.x]) for row in rows]
    places = range(len(rows))
    left = [0.0] * len(rows)
    for number, column in enumerate(plot.stacked or (plot.y,)):
        amounts = [float(row[column]) for row in rows]
        shown: Any = _LABEL_COLOURS.get(column, _COLOURS[number])
        if not plot.stacked and apart:
            shown = [colours[str(row[plot.series])] for row in rows]
        axis.barh(places, amounts, left=left, color=shown, label=column if plot.stacked else None, zorder=2)
        left = [a + b for a, b in zip(left, amounts, strict=True)]
    if not plot.stacked and min(left) > 0 and max(left) > _WIDE * min(left):
        axis.set_xscale("log")
        axis.set_xlim(left=min(left) / 2)
    axis.set_yticks(list(places), names, fontsize=max(4, min(9, 260 // max(1, len(rows)))))
    axis.invert_yaxis()
    axis.set_xlabel(plot.y)
    axis.grid(axis="x", alpha=0.3)


def _dots(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws a line per row with a dot for each of the `stacked` columns."""
    places = range(len(rows))
    for number, column in enumerate(plot.stacked):
        axis.plot(
            [row[column] for row in rows],
            places,
            linestyle="none",
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=7,
            alpha=0.85,
            color=_COLOURS[number % len(_COLOURS)],
            label=column,
        )
    axis.set_yticks(list(places), [str(row[plot.x]) for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_xlabel(plot.y)
    axis.grid(alpha=0.3)


def _grid(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws a cell for each x (across) and y (down), in the colour of its series."""
    columns = dict.fromkeys(row[plot.x] for row in rows)
    numbers = all(isinstance(column, int) for column in columns)
    across = [str(column) for column in (sorted(columns) if numbers else columns)]
    down = list(dict.fromkeys(str(row[plot.y]) for row in rows))
    for name in dict.fromkeys(str(row[plot.series]) for row in rows):
        mine = [row for row in rows if str(row[plot.series]) == name]
        axis.barh(
            [down.index(str(row[plot.y])) for row in mine],
            [1.0] * len(mine),
            height=1.0,
            left=[across.index(str(row[plot.x])) for row in mine],
            color=colours[name],
            edgecolor="white",
            label=name,
        )
    axis.set_xticks([place + 0.5 for place in range(len(across))], across, fontsize=8, rotation=45)
    axis.set_yticks(range(len(down)), down, fontsize=8)
    axis.set_xlim(0, len(across))
    axis.set_ylim(len(down) - 0.5, -0.5)


def _scatter(axis: Any, plot: Plot, rows: list[Row], colours: dict[str, str]) -> None:
    """Draws a dot per row on logarithmic axes, in the colour of its series, sized by `stacked`."""
    for name in dict.fromkeys(str(row[plot.series]) for row in rows):
        mine = [row for row in rows if str(row[plot.series]) == name]
        axis.scatter(
            [row[plot.x] for row in mine],
            [row[plot.y] for row in mine],
            s=[15 + 8 * row[plot.stacked[0]] for row in mine],
            color=colours[name],
            alpha=0.8,
            label=name,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(plot.x)
    axis.set_ylabel(plot.y)
    axis.grid(alpha=0.3)


_KINDS = {
    "lines": _lines,
    "boxes": _boxes,
    "columns": _columns,
    "bars": _bars,
    "dots": _dots,
    "grid": _grid,
    "scatter": _scatter,
}
