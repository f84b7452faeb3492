"""setup.py compiles all hot modules, or none with a reason and without a failure.

Running `tests/unit` on both forms shows that compiled modules behave like interpreted ones: `make test` does
so, the second time with `--compiled`, which fails if a module was not compiled. `python -m tests.install`
installs builds into empty environments; `make test` and `make dist` run it.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import setuptools
from setuptools.dist import Distribution

from treecast.middleware.daemon.compiled import ADVICE, EDITABLE, Built, read_note, why_interpreted

ROOT = Path(__file__).resolve().parents[2]

Build = Callable[[str], list[str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that setup.py last passed to setuptools as `ext_modules` and `cmdclass`."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **asked: found.update(asked))
    return found


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> Build:
    """Runs setup.py for a command; returns the names of the extensions that it requests. mypyc itself does
    not run."""
    pytest.importorskip("mypyc", reason="mypyc comes with the extra `test`")

    def mypycify(paths: list[str], **_: object) -> list[setuptools.Extension]:
        found = [setuptools.Extension(path, []) for path in paths if path.endswith(".py")]
        return found

    def run(command: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["setup.py", command])
        runpy.run_path(str(ROOT / "setup.py"))
        extensions: list[setuptools.Extension] = asked["ext_modules"]
        assert all("-fvisibility=hidden" in extension.extra_compile_args for extension in extensions)
        return [extension.name for extension in extensions]

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("mypyc.build.mypycify", mypycify)
    monkeypatch.delenv("TREECAST_PURE", raising=False)
    return run


@pytest.fixture
def gcc(require_tool: Callable[[str], str]) -> None:
    require_tool("gcc")


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("command", ["bdist_wheel", "editable_wheel", "build_ext"])
def test_builds_compile_the_hot_modules(build: Build, command: str) -> None:
    modules = build(command)
    assert "src/treecast/middleware/wire/batch.py" in modules
    assert [module for module in modules if not (ROOT / module).is_file()] == []


@pytest.mark.parametrize("command", ["egg_info", "dist_info", "sdist"])
def test_metadata_needs_no_compiler(build: Build, command: str) -> None:
    assert build(command) == []


def test_pure_leaves_them_out(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREECAST_PURE", "1")
    assert build("bdist_wheel") == []
    assert "TREECAST_PURE=1 was set, so the hot modules stay interpreted" in capsys.readouterr().err


@pytest.mark.usefixtures("gcc")
def test_without_mypyc_they_stay_interpreted(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    assert build("bdist_wheel") == []
    assert "stay interpreted" in capsys.readouterr().err


def test_without_a_compiler_they_stay_interpreted(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build("bdist_wheel") == []
    assert "no C compiler was found (no-such-compiler)" in capsys.readouterr().err
    useless = tmp_path / "cc"
    useless.write_text("#!/bin/sh\nexit 1\n")
    useless.chmod(0o755)
    monkeypatch.setenv("CC", str(useless))
    assert build("bdist_wheel") == []
    assert "cannot compile a file that includes Python.h" in capsys.readouterr().err


@pytest.mark.usefixtures("gcc")
def test_what_mypyc_refuses_stays_interpreted(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        print("a.py:1: error: Class cannot subclass")
        raise SystemExit(1)

    monkeypatch.setattr("mypyc.build.mypycify", refuse)
    assert build("bdist_wheel") == []
    assert "mypyc refused them: a.py:1: error: Class cannot subclass, so" in capsys.readouterr().err


# --- the build itself, of two small modules


def small_build(asked: dict[str, Any], folder: Path, sources: dict[str, str]) -> Path:
    """Builds a package of one Python file and the sources by setup.py's commands; returns its place."""
    package = folder / "treecast"
    package.mkdir()
    (package / "__init__.py").write_text("")
    extensions = []
    for name, text in sources.items():
        path = folder / f"{name}.c"
        path.write_text(text)
        extensions.append(setuptools.Extension(f"treecast.{name}", [str(path)]))
    distribution = Distribution(
        {
            "name": "small",
            "packages": ["treecast"],
            "package_dir": {"": str(folder)},
            "ext_modules": extensions,
            "cmdclass": asked["cmdclass"],
            "script_name": "setup.py",
        }
    )
    command = distribution.get_command_obj("build")
    command.build_base = str(folder / "build")
    command.build_lib = str(folder / "built")
    command.ensure_finalized()
    distribution.run_command("build")
    return folder / "built" / "treecast"


GOOD = "#include <Python.h>\nPyObject *PyInit_good(void) { return NULL; }\n"


@pytest.mark.usefixtures("gcc")
@pytest.mark.parametrize("bad", ["", "this is not C"], ids=["all", "none"])
def test_all_are_compiled_or_none(build: Build, asked: dict[str, Any], tmp_path: Path, bad: str) -> None:
    """A partly compiled package cannot be imported, and such an installation is the worst outcome."""
    build("bdist_wheel")
    sources = {"good": GOOD, **({"bad": bad} if bad else {})}
    built = small_build(asked, tmp_path, sources)
    compiled = [path.name for path in built.glob("*.so")]
    note = read_note(built)
    if bad:
        assert (compiled, note.form) == ([], "c-failed")
        assert "the C compiler refused what mypyc wrote" in why_interpreted(note)
    else:
        assert len(compiled) == 1
        assert note.form == "compiled"


def test_pure_python_has_a_note_as_well(
    build: Build, asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREECAST_PURE", "1")
    build("bdist_wheel")
    note = read_note(small_build(asked, tmp_path, {}))
    assert note == Built("pure", "TREECAST_PURE=1 was set")
    assert why_interpreted(note).startswith("TREECAST_PURE=1 was set; without TREECAST_PURE, ")


# --- advice at run time


def test_each_form_of_setup_py_has_its_advice() -> None:
    """The forms are the arguments of `interpreted("pure", ...)` and the first items of pairs."""
    text = (ROOT / "setup.py").read_text()
    forms = set(re.findall(r'(?:interpreted\(|return )"([a-z-]+)", ', text))
    assert forms == set(ADVICE) - {EDITABLE}


def test_notes_that_are_not_there_or_not_json(tmp_path: Path) -> None:
    assert read_note(tmp_path).form == EDITABLE
    (tmp_path / "built.json").write_text("{")
    assert read_note(tmp_path).form == "unknown"
    (tmp_path / "built.json").write_text(json.dumps({"form": 7}))
    assert read_note(tmp_path).form == "unknown"
    assert "built.json cannot be read" in why_interpreted(read_note(tmp_path))
    assert "this Python does not load them" in why_interpreted(Built("compiled"))


# --- requirements of the build


def requirements(texts: list[str]) -> dict[str, str]:
    """Parses `["mypy[mypyc]==2.4.1"]` into `{"mypy": "==2.4.1"}`."""
    found = {}
    for text in texts:
        name = re.split(r"[\[<>=!~;]", text, maxsplit=1)[0]
        found[name] = text.removeprefix(name).partition("]")[2] or text.removeprefix(name)
    return found


def test_the_build_has_what_hot_modules_import_in_the_versions_that_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = requirements(project["build-system"]["requires"])
    runtime = requirements(project["project"]["dependencies"])
    tests = requirements(project["project"]["optional-dependencies"]["test"])
    assert needed.pop("setuptools")
    assert re.fullmatch(r"==[\d.]+", needed["mypy"])
    assert needed == {name: {**tests, **runtime}[name] for name in needed}
    hot = runpy.run_path(str(ROOT / "tests/house/test_compiled_structs.py"))["hot_modules"]()
    typed = [
        *(ROOT / module for module in hot),
        *(ROOT / "middleware/api/v1").glob("*.pyi"),
    ]  # and their types
    text = "\n".join(path.read_text() for path in typed)
    roots = set(re.findall(r"^(?:from(?= \S+ import)|import) ([a-z]\w*)", text, re.MULTILINE))
    packages = {"google": "types-protobuf", "mypy_extensions": "mypy-extensions"}
    foreign = {
        packages.get(root, root) for root in roots - sys.stdlib_module_names - {"treecast", "__future__"}
    }
    assert foreign | {"mypy"} == set(needed)
