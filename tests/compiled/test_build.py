"""What setup.py hands to the build: the hot modules compiled, or none and no failure.

That the compiled modules do what the interpreted ones do is shown by running `tests/unit` on both:
`make test` does, the second time with `--compiled`, which fails where one of them was not compiled.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).resolve().parents[2]

Build = Callable[[str], list[str]]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    """Runs setup.py for a command; the names of the extensions that it asks for. mypyc itself doesn't run."""
    pytest.importorskip("mypyc", reason="mypyc comes with the extra `test`")
    asked: list[str] = []

    def mypycify(paths: list[str], **_: object) -> list[setuptools.Extension]:
        found = [setuptools.Extension(path, []) for path in paths if path.endswith(".py")]
        return found

    def setup(ext_modules: list[setuptools.Extension]) -> None:
        assert all(extension.optional for extension in ext_modules)
        assert all("-fvisibility=hidden" in extension.extra_compile_args for extension in ext_modules)
        asked.extend(extension.name for extension in ext_modules)

    def run(command: str) -> list[str]:
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["setup.py", command])
        runpy.run_path(str(ROOT / "setup.py"))
        return list(asked)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("mypyc.build.mypycify", mypycify)
    monkeypatch.setattr(setuptools, "setup", setup)
    monkeypatch.delenv("TREECAST_PURE", raising=False)
    return run


@pytest.mark.parametrize("command", ["bdist_wheel", "editable_wheel", "build_ext"])
def test_builds_compile_the_hot_modules(build: Build, command: str) -> None:
    modules = build(command)
    assert "src/treecast/middleware/wire/record_walk.py" in modules
    assert [module for module in modules if not (ROOT / module).is_file()] == []


@pytest.mark.parametrize("command", ["egg_info", "dist_info", "sdist"])
def test_metadata_needs_no_compiler(build: Build, command: str) -> None:
    assert build(command) == []


def test_pure_leaves_them_out(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREECAST_PURE", "1")
    assert build("bdist_wheel") == []


def test_without_mypyc_they_stay_interpreted(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    assert build("bdist_wheel") == []
    assert "stay interpreted" in capsys.readouterr().err


def test_what_mypyc_refuses_stays_interpreted(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("mypyc.build.mypycify", refuse)
    assert build("bdist_wheel") == []
    assert "stay interpreted" in capsys.readouterr().err
