"""The result as one picture: a panel per metric, a bar per peer and workload, whiskers over the rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .measure import Metric
from .report import Row, Spread, asked, number

COLOURS = {"Treecast": "#1b7f79", "floor": "#b8b8b8", "floor, one": "#cfcfcf", "floor, two": "#9a9a9a"}
OURS = ("#1b7f79", "#7fc4b8", "#12524e")  # for comparisons in which several peers are Treecast
MANY = 3  # names; more do not fit beside the title
LETTERS = 110  # of names that fit below each other's, with the room that each takes besides
BESIDES = 6
OTHERS = ("#d9822b", "#7a5195", "#3f6fb5")


def draw(
    rows: Sequence[Row],
    names: Sequence[str],
    path: Path,
    title: str,
    metrics: Sequence[Metric] = (),
    ours: Sequence[str] = (),
) -> None:
    """Writes `path` (.png or .svg). Panels: `metrics`, else each metric that asks for a ratio, in the rows'
    order. The peers named in `ours` get shades of one colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    metrics = metrics or list(dict.fromkeys(row.metric for row in rows if row.metric.target is not None))
    panels = [panel for metric in metrics if (panel := [row for row in rows if row.metric == metric])]
    if not panels:
        return
    colours = _colours(names, ours)
    many = len(names) > MANY
    heights = [0.75 + (0.17 if many else 0.24) * max(_places(panel), 2) for panel in panels]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(10, sum(heights) + 1.0),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        _panel(axis, panel, colours)
    patches = [Patch(color=colours[name], label=name) for name in names]
    _legend(figure, patches, title, many)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _legend(figure: object, patches: Sequence[Any], title: str, many: bool) -> None:
    """Places the legend beside the title, or below it if the names do not fit."""
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    looks = {"handles": patches, "ncols": len(patches), "fontsize": 9, "frameon": False}
    if many:
        widest = max(len(str(patch.get_label())) for patch in patches)
        looks["ncols"] = max(1, LETTERS // (widest + BESIDES))
        figure.legend(**looks, loc="outside upper left", title=title, title_fontsize=13, alignment="left")
    else:
        figure.suptitle(title, fontsize=13, x=0.01, ha="left")
        figure.legend(**looks, loc="outside upper right")


def _places(rows: Sequence[Row]) -> float:
    """Returns how many bars a panel has room for: a little is left after each workload."""
    return sum(len(row.peers) + 0.6 for row in rows)


def _panel(axis: object, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Draws bars, on a logarithmic axis if the medians span more than a factor of 20."""
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    metric = rows[0].metric
    position, ticks, labels = 0.0, [], []
    medians = [spread.median for row in rows for spread in row.peers.values()]
    largest, smallest = max(medians), min(medians)
    if smallest > 0 and largest / smallest > 20:
        axis.set_xscale("log")
    for row in rows:
        present = [name for name in colours if name in row.peers]
        ticks.append(position + (len(present) - 1) / 2)
        ratio = "" if row.ratio is None else f"\n{row.ratio:.3g}x"
        labels.append(row.workload + ratio)
        for name in present:
            _bar(axis, position, row.peers[name], colours[name])
            position += 1
        position += 0.6
    axis.set_yticks(ticks, labels, fontsize=8)
    axis.invert_yaxis()
    better = "higher" if metric.higher_is_better else "lower"
    target = asked(metric, metric.target) if any(row.ratio is not None for row in rows) else ""
    heading = f"{better} is better" + (f"; asked: {target}" if target else "")
    axis.set_title(f"{metric.name} ({metric.unit}) · {heading}", fontsize=10, loc="left")
    axis.margins(x=0.18, y=0.02)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if position < 2:
        axis.set_ylim(1.2, -1.2)


def _bar(axis: object, position: float, spread: Spread, colour: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    whisker = [[spread.median - spread.low], [spread.high - spread.median]]
    axis.barh(
        [position],
        [spread.median],
        xerr=whisker if spread.count > 1 else None,
        height=0.9,
        color=colour,
        error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#444444"},
    )
    axis.annotate(
        number(spread.median),
        (spread.high, position),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _colours(names: Sequence[str], ours: Sequence[str]) -> dict[str, str]:
    """Returns name -> colour, in the order of `names`."""
    floors = {name: COLOURS["floor"] for name in names if name.startswith("floor")}
    known = {**floors, **COLOURS, **{name: OURS[number % len(OURS)] for number, name in enumerate(ours)}}
    others = [name for name in names if name not in known]
    return {
        name: known[name] if name in known else OTHERS[others.index(name) % len(OTHERS)] for name in names
    }
