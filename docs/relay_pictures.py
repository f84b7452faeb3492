"""Draws the pictures of the carrier relay: `python docs/relay_pictures.py` writes docs/images/relay-*.svg.

The numbers are those of the tables of a results page, so that they are written once.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from treecast.middleware.evaluation.figure import Plot, Result, Row
from treecast.middleware.evaluation.plots import draw

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "results" / "2026-11-24-relay.md"
IMAGES = DOCS / "images"
COMPARED = {  # columns of the table, and what they are in words
    "the origin's link": "copies on the sender's link",
    "CPU s of the origin": "processor time of the sender, s",
    "MB/s of each": "rate at each receiver, MB/s",
}
SMALL = {"p99 idle": "idle", "p99 beside 100 MB": "beside 100 MB"}


def table(column: str) -> list[dict[str, str]]:
    """Returns the rows of the page's last table that has the column."""
    found: list[dict[str, str]] = []
    head: list[str] = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            head = []
        elif not head:
            head = cells
            found = [] if column in head else found
        elif column in head and not line.startswith("| -"):
            found.append(dict(zip(head, cells, strict=True)))
    return found


def compared() -> Result:
    rows: list[Row] = [
        {
            "receivers": int(row["receivers"]),
            "carrier": row["carrier"],
            "amount": float(row[column]),
            "what": what,
        }
        for column, what in COMPARED.items()
        for row in table("CPU s of the origin")
    ]
    plot = Plot(
        *("receivers", "amount", "carrier", "what"),
        title="100 MB to receivers in three zones: by relay, and by as many unicast copies",
        labels=("receivers", " "),
    )
    return Result("relay-unicast", plot.title, tuple(rows[0]), rows, plots=(plot,))


def small() -> Result:
    latency = "99 % are at the last host within, ms"
    rows: list[Row] = [
        {"carrier": row["carrier"], "load": load, latency: float(row[column])}
        for row in table("p99 idle")
        for column, load in SMALL.items()
    ]
    plot = Plot(
        *("load", latency, "carrier"),
        kind="bars",
        title="A small stream to 11 hosts in three zones",
    )
    return Result("relay-small", plot.title, tuple(rows[0]), rows, plots=(plot,))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for result in (compared(), small()):
            for path in draw(result, Path(folder)):
                if path.suffix == ".svg":
                    print(shutil.copy(path, IMAGES))


if __name__ == "__main__":
    main()
