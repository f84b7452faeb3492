"""Counts the methods of own classes with those of their bases, and finds the circles of files that import
each other, whether under `TYPE_CHECKING` or not.

`python -m tests.house.classes` prints the largest classes and all circles.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.house.contract import REPOSITORY, imports_of, module_name, sources

Name = tuple[str, str]  # a module and a class of it


class Classes:
    """The classes at the top level of files, with the bases that are own classes."""

    def __init__(self, paths: Iterable[Path], root: Path = REPOSITORY) -> None:
        self._nodes: dict[Name, ast.ClassDef] = {}
        self._imported: dict[Name, Name] = {}
        for path in paths:
            self._read(path, root)

    def _read(self, path: Path, root: Path) -> None:
        module = module_name(path)
        for node in ast.parse((root / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                self._nodes[module, node.name] = node
        for found in imports_of(path, root):
            origin, _, name = found.module.rpartition(".")
            self._imported[module, found.local or name] = (origin, name)

    def names(self) -> list[Name]:
        return list(self._nodes)

    def methods(self, name: Name) -> set[str]:
        """Returns the names of a class's methods and properties, with those of its bases."""
        defined = (ast.FunctionDef, ast.AsyncFunctionDef)
        own = {node.name for node in self._nodes[name].body if isinstance(node, defined)}
        return own.union(*(self.methods(base) for base in self._bases(name)))

    def _bases(self, name: Name) -> Iterator[Name]:
        for base in self._nodes[name].bases:
            found = self._home((name[0], ast.unparse(base).partition("[")[0]))
            if found is not None:
                yield found

    def _home(self, name: Name) -> Name | None:
        """Follows imports to the module that defines a name; None if it is not ours."""
        while name not in self._nodes:
            if name not in self._imported or self._imported[name] == name:
                return None
            name = self._imported[name]
        return name


def sizes(paths: Iterable[Path] | None = None, root: Path = REPOSITORY) -> dict[str, int]:
    """Returns the numbers of methods by class, as `shims/amqp/session.py Session`."""
    known = {module_name(path): path for path in (sources(root) if paths is None else paths)}
    classes = Classes(known.values(), root)
    return {f"{known[name[0]]} {name[1]}": len(classes.methods(name)) for name in classes.names()}


def circles(paths: Iterable[Path] | None = None, root: Path = REPOSITORY) -> list[set[str]]:
    """Returns the sets of files that import each other in a circle, by Tarjan's algorithm. A package's
    `__init__.py` only hands names on: who imports one of them imports its file."""
    known = {module_name(path): str(path) for path in (sources(root) if paths is None else paths)}
    graph = {path: set(_targets(Path(path), known, root)) - {path} for path in known.values()}
    return [circle for circle in _components(graph) if len(circle) > 1]


def _targets(path: Path, known: dict[str, str], root: Path) -> Iterator[str]:
    if path.name == "__init__.py":
        return
    for found in imports_of(path, root):
        target = known.get(found.module) or known.get(found.module.rpartition(".")[0])
        if target is not None and not target.endswith("__init__.py"):
            yield target


def _components(graph: dict[str, set[str]]) -> list[set[str]]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(set(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def main() -> None:
    for name, count in sorted(sizes().items(), key=lambda item: -item[1])[:30]:
        print(f"{count:4} {name}")
    for circle in sorted(circles(), key=len):
        print(f"{len(circle):4} {' '.join(sorted(circle))}")


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
