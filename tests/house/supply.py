"""Lists what runs with a daemon besides Treecast: packages, their licences, and advisories.

    python -m tests.house.supply                        the packages as a requirements file
    python -m tests.house.supply docs/dependencies.md   writes the table of licences into a page

The packages are those that pyproject.toml names and what these need, as installed here.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY: Final = Path(__file__).resolve().parents[2]
BEGIN: Final = "<!-- written by `python -m tests.house.supply docs/dependencies.md` -->"
END: Final = "<!-- end -->"
# Packages whose metadata names no licence, or names one in words of their own.
_SAID: Final = {
    "aiosignal": "Apache-2.0",
    "lz4": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "protobuf": "BSD-3-Clause",
    "shellingham": "ISC",
    "uvloop": "MIT OR Apache-2.0",
}


def declared() -> list[Requirement]:
    """The run-time dependencies of pyproject.toml."""
    found = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    return [Requirement(one) for one in found["project"]["dependencies"]]


def closure() -> dict[str, str]:
    """Returns the version of each installed package that a daemon needs, by name."""
    found: dict[str, str] = {}
    todo = [(one, frozenset[str]()) for one in declared()]
    while todo:
        wanted, extras = todo.pop()
        name = canonicalize_name(wanted.name)
        needed = wanted.marker is None or any(
            wanted.marker.evaluate({"extra": extra}) for extra in extras or {""}
        )
        if not needed or name in found:
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
        todo += [(Requirement(one), frozenset(wanted.extras)) for one in requires(name) or ()]
    return dict(sorted(found.items()))


def licence(name: str) -> str:
    """Returns the licence of an installed package as an SPDX expression."""
    known = metadata(name)
    return _SAID.get(name) or known.get("License-Expression") or known.get("License") or "unknown"


def advisories() -> list[dict[str, Any]]:
    found = tomllib.loads((REPOSITORY / "tests/house/advisories.toml").read_text(encoding="utf-8"))
    advisories: list[dict[str, Any]] = found["advisory"]
    return advisories


def table() -> str:
    named = {canonicalize_name(one.name) for one in declared()}
    rows = [f"| {name} | {licence(name)} | {'yes' if name in named else ''} |" for name in closure()]
    return "\n".join(["| package | licence | named by Treecast |", "| --- | --- | --- |", *rows])


def written(page: str) -> str:
    """Returns the page with the table of now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n".join(f"{name}=={number}" for name, number in closure().items()))
