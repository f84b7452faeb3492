"""No class has many methods, and no files import each other in a circle; the exceptions only get fewer."""

from __future__ import annotations

from pathlib import Path

from tests.house.classes import circles, sizes

MOST = 45  # methods of a class, with those of its bases

# Classes that are larger, by their size: a class that shrinks gets its new number, or leaves the list.
LARGER: dict[str, int] = {}

# Circles of files: the number of their files, by one of them.
CIRCLES = {
    "middleware/broker/pubsub/journal.py": 8,
    "middleware/broker/queues/elsewhere.py": 5,
    "middleware/dataplane/p4/ast/expressions.py": 2,
    "middleware/dataplane/p4/check/scope.py": 2,
    "middleware/fabric/carriers/carrier.py": 2,
    "middleware/fabric/fabric.py": 2,
    "middleware/relay/events/accounts.py": 3,
    "middleware/storage/durability.py": 12,
    "shims/listening.py": 2,
}


def test_no_class_has_more_methods_than_a_reader_can_hold() -> None:
    larger = {name: count for name, count in sizes().items() if count > MOST}
    assert larger == LARGER


def test_circles_of_files_are_the_known_ones() -> None:
    """Those under `TYPE_CHECKING` count too: who reads one file of a circle has to read the others."""
    assert sorted(sorted(circle)[0] for circle in circles()) == sorted(CIRCLES)
    assert {sorted(circle)[0]: len(circle) for circle in circles()} == CIRCLES


def test_methods_of_bases_in_other_files_count(tmp_path: Path) -> None:
    write(tmp_path, "a", "class A:\n    def one(self): ...\n    def two(self): ...")
    write(
        tmp_path, "b", "from .a import A as Base\nfrom x import Y\nclass B(Base, Y):\n    def two(self): ..."
    )
    paths = [Path("wire/a.py"), Path("wire/b.py")]
    assert sizes(paths, tmp_path) == {"wire/a.py A": 2, "wire/b.py B": 2}


def test_a_circle_is_seen_whatever_hides_it(tmp_path: Path) -> None:
    write(tmp_path, "a", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B")
    write(tmp_path, "b", "from .c import C")
    write(tmp_path, "c", "def late():\n    from .a import A")
    write(tmp_path, "d", "from .a import A")
    paths = [Path(f"wire/{name}.py") for name in "abcd"]
    assert circles(paths, tmp_path) == [{"wire/a.py", "wire/b.py", "wire/c.py"}]


def write(folder: Path, name: str, source: str) -> None:
    (folder / "wire").mkdir(exist_ok=True)
    (folder / "wire" / f"{name}.py").write_text(source + "\n")
