"""Each page of docs/tutorials is typed word for word, and prints what it says."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from treecast.middleware.evaluation.rabbitmq import missing

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "tutorials"

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # queries are short: half of the processor time
Require = Callable[[object, str], None]


def _typed() -> ModuleType:
    """Imports the module beside this one: tests are imported by their paths."""
    spec = importlib.util.spec_from_file_location("tutorials_typed", Path(__file__).with_name("typed.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


typed = _typed()


@pytest.fixture
def read_and_type(tmp_path: Path, require: Require) -> Iterator[Callable[[str], int]]:
    """Types a page in its own folder and network, which are both removed afterwards."""
    require(
        sys.platform == "linux" and typed.can_have_a_namespace(), "network namespaces cannot be made here"
    )
    for name in ("examples/lab", "p4"):
        shutil.copytree(ROOT / name, tmp_path / name)
    with contextlib.ExitStack() as shells:

        def shell(*before: str) -> typed.Shell:  # type: ignore[name-defined]
            opened = typed.Shell(tmp_path, *before)
            shells.callback(opened.end)
            return opened

        def run(name: str) -> int:
            outside, inside = shell(), shell(*typed.namespace())
            inside.type("ip link set lo up")
            number: int = typed.run(PAGES / f"{name}.md", inside, outside, tmp_path)
            return number

        yield run


@pytest.fixture
def read_and_type_as_root(tmp_path: Path, require: Require) -> Iterator[Callable[[str], int]]:
    """Types a page that makes a lab; the lab is removed afterwards."""
    require(sys.platform == "linux" and os.geteuid() == 0, "network namespaces need root")
    for module in ("pyroute2", "finsy"):
        require(importlib.util.find_spec(module), f"{module} is not installed")
    for name in ("examples/lab", "p4"):
        # a lab of the same file in another folder is another lab
        shutil.copytree(ROOT / name, tmp_path / name)
    shell = typed.Shell(tmp_path)
    yield lambda name: typed.run(PAGES / f"{name}.md", shell, shell, tmp_path)
    with contextlib.suppress(AssertionError, OSError):
        shell.type("treecast lab down $LAB")  # in case the page stopped before its own `lab down`
    shell.end()


def test_application(read_and_type: Callable[[str], int], require_tool: Callable[[str], str]) -> None:
    for tool in ("java", "mvn", "node", "npm"):
        require_tool(tool)
    assert read_and_type("application") > 8


def test_spark(
    read_and_type: Callable[[str], int],
    require: Require,
    require_tool: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_tool("java")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", JAVA)
    require(importlib.util.find_spec("pyspark"), "pyspark is not installed")
    assert read_and_type("spark") > 6


def test_evaluation(read_and_type: Callable[[str], int], require: Require) -> None:
    require(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    assert read_and_type("evaluation") > 5


def test_three_hosts(read_and_type_as_root: Callable[[str], int]) -> None:
    assert read_and_type_as_root("three-hosts") > 15


def test_p4_switches(read_and_type_as_root: Callable[[str], int]) -> None:
    assert read_and_type_as_root("p4-switches") > 15


def test_rabbitmq_sites(
    read_and_type_as_root: Callable[[str], int], require: Require, require_tool: Callable[[str], str]
) -> None:
    require_tool("epmd")
    require(missing() == "", missing())
    require(importlib.util.find_spec("pika"), "pika is not installed")
    assert read_and_type_as_root("rabbitmq-sites") > 15


def test_kafka_cluster(read_and_type: Callable[[str], int], require_tool: Callable[[str], str]) -> None:
    for tool in ("java", "mvn"):
        require_tool(tool)
    assert read_and_type("kafka-cluster") > 15


def test_every_tutorial_is_typed_and_listed() -> None:
    names = {path.stem for path in PAGES.glob("*.md")} - {"index"}
    index = (PAGES / "index.md").read_text("utf-8")
    assert [name for name in names if f"({name}.md)" not in index] == []
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert names <= tests


def test_what_is_typed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="a.py"\nprint("here")\n```\n'
        "<!-- not typed: it is there -->\n```console\n$ false\n```\n"
        "```console\n$ python a.py\nhere\n$ echo one \\\n  two\none two\n```\n"
        "<!-- repeated -->\n```console\n$ echo x >> n; cat n\nx\nx\nx\n```\n"
    )
    shell = typed.Shell(tmp_path)
    try:
        assert typed.run(page, shell, shell, tmp_path) == 3
        page.write_text("```console\n$ echo other\nexpected\n```\n")
        with pytest.raises(AssertionError, match="other"):
            typed.run(page, shell, shell, tmp_path)
        page.write_text("```console\n$ false\n```\n")
        with pytest.raises(AssertionError, match="false"):
            typed.run(page, shell, shell, tmp_path)
    finally:
        shell.end()


def test_lines_are_compared_with_gaps() -> None:
    assert typed.shows("a\nb  c\nd\n", ["a", "...", "d"])
    assert typed.shows("one 7 two\n", ["one ... two"])
    assert not typed.shows("b\na\n", ["a", "b"])
