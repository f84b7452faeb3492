"""Runs a notebook's cells one after the other, then the SQL of a page on its tables.

    notebook.py NOTEBOOK PAGE

As a reader does, in one interpreter. Prints one line of JSON: what the cells named, and rows by statement.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")


def cells(path: Path) -> list[str]:
    notebook = json.loads(path.read_text())
    return ["".join(one["source"]) for one in notebook["cells"] if one["cell_type"] == "code"]


def statements(path: Path) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", path.read_text(), re.DOTALL)


def main() -> None:
    sys.path.insert(0, "")  # as a notebook's kernel has the folder that it was started in
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells(Path(sys.argv[1]))):
        exec(compile(cell, f"cell {number}", "exec"), names)
    spark = names["spark"]
    spark.sparkContext.setLogLevel("OFF")
    asked = {
        text.strip(): [row.asDict() for row in spark.sql(text).collect()]
        for text in statements(Path(sys.argv[2]))
    }
    found = {
        "labels": list(names["labels"]["labels"]),
        "filters": names["filters"].to_dict("records"),
        "missing": names["missing"].to_dict("records"),
        "heard": names["heard"].shape,
        "sql": list(asked.items()),
    }
    print("FOUND " + json.dumps(found, default=str))
    spark.stop()


if __name__ == "__main__":
    main()
