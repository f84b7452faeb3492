"""The picture: labels and header bytes per packet over the rounds, for each way to choose trees."""

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


def draw(phases: Sequence[str], rounds: int, labels: Mapping[str, Sequence[float]], path: Path) -> None:
    """`labels`: per packet, by arm and round, after the round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(10, 5), layout="constrained")
    most = max(max(values) for values in labels.values())
    for arm, values in labels.items():
        dashed = "--" if arm == "hindsight" else "-"
        axis.step(
            range(1, len(values) + 1), values, dashed, where="mid", color=COLOURS[arm], label=TEXTS[arm], lw=2
        )
    for number, phase in enumerate(phases):
        axis.axvline(number * rounds + 0.5, color="#c9ced3", lw=1)
        axis.text(number * rounds + 0.6, most * 1.08, f"{phase} interests", fontsize=9, color="#3b4754")
    axis.set_ylim(0, most * 1.18)
    axis.set_xlabel("rounds (micro-batches)")
    axis.set_ylabel("labels per packet")
    bytes_axis = axis.secondary_yaxis("right", functions=(_size, _labels))
    bytes_axis.set_ylabel("header bytes per packet")
    axis.spines[["top"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _size(labels: Any) -> Any:
    """Returns the bytes of a stack: a count, and two for each label."""
    return COUNT_SIZE + LABEL_SIZE * labels


def _labels(size: Any) -> Any:
    return (size - COUNT_SIZE) / LABEL_SIZE
