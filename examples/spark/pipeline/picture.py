"""The picture: labels and header bytes per packet over micro-batches, for each way to choose trees.

Each phase begins with the trees of the one before: the first step of a phase is what a shift costs before
anybody has seen it. What lies between the manager alone and the pipeline is filled: that is what Spark gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treecast.middleware.wire.label_stack import COUNT_SIZE, LABEL_SIZE

COLOURS = {"none": "#9aa3ab", "adapt": "#d9822b", "pipeline": "#1b7f79", "hindsight": "#3b4754"}
TEXTS = {
    "none": "no trees",
    "adapt": "the manager alone (adapt)",
    "pipeline": "the pipeline on Spark",
    "hindsight": "the best strategy in hindsight",
}


def draw(phases: Sequence[str], points: int, labels: Mapping[str, Sequence[float]], path: Path) -> None:
    """`labels`: per packet by arm: `points` for each phase, at its beginning and after each micro-batch."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(10, 5), layout="constrained")
    most = max(max(values) for values in labels.values())
    for arm, values in labels.items():
        dashed = "--" if arm == "hindsight" else "-"
        axis.step(*_held(values), dashed, where="post", color=COLOURS[arm], label=TEXTS[arm], lw=2)
    at, alone = _held(labels["adapt"])
    _, spark = _held(labels["pipeline"])
    axis.fill_between(
        at, alone, spark, step="post", color=COLOURS["pipeline"], alpha=0.15, lw=0, label=_saved(labels)
    )
    for number, phase in enumerate(phases):
        axis.axvline(number * points, color="#c9ced3", lw=1)
        axis.text(number * points + 0.1, most * 1.08, f"{phase} interests", fontsize=9, color="#3b4754")
    axis.set_xticks([at + 0.5 for at in range(len(labels["none"]))], _names(len(phases), points))
    axis.set_ylim(0, most * 1.18)
    axis.set_xlim(0, len(labels["none"]))
    axis.set_xlabel("micro-batches since the shift")
    axis.set_ylabel("labels per packet")
    bytes_axis = axis.secondary_yaxis("right", functions=(_size, _labels))
    bytes_axis.set_ylabel("header bytes per packet")
    axis.spines[["top"]].set_visible(False)
    axis.legend(frameon=False, loc="lower center", fontsize=9, ncols=2)  # no line is that low
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _held(values: Sequence[float]) -> tuple[list[int], list[float]]:
    """Returns the steps of a line: the last value lasts as long as the others."""
    return list(range(len(values) + 1)), [*values, values[-1]]


def _names(phases: int, points: int) -> list[str]:
    return [str(at) for _ in range(phases) for at in range(points)]


def _saved(labels: Mapping[str, Sequence[float]]) -> str:
    """Returns what the pipeline saves of the manager's header bytes, over the whole run."""
    alone, spark = (sum(_size(one) for one in labels[arm]) for arm in ("adapt", "pipeline"))
    return f"what Spark gave: {1 - spark / alone:.0%} of the header bytes"


def _size(labels: Any) -> Any:
    """Returns the bytes of a stack: a count, and two for each label."""
    return COUNT_SIZE + LABEL_SIZE * labels


def _labels(size: Any) -> Any:
    return (size - COUNT_SIZE) / LABEL_SIZE
