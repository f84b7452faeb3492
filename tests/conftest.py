"""Fixtures for all tests: real daemons as child processes, and tools that a test needs.

| fixture         | what it is                                                                  |
| --------------- | --------------------------------------------------------------------------- |
| `daemon`        | one running `treecast up` on port 0, data in a temporary directory           |
| `start_daemon`  | starts daemons: `start_daemon("--fsync", "batch", data=path, environment={})` |
| `shared_daemon` | one for all tests of a module; for tests that each use topics of their own   |
| `require_tool`  | `require_tool("kcat")`: its path, or a skip (a failure where TREECAST_CI=1)    |
| `require`       | `require(condition, reason)`: the same for any other condition                |

Each daemon is a `treecast.middleware.daemon.process.DaemonProcess`: `.kafka` (HOST:PORT),
`.address("kafka")`, `.pid`, `.kill()`, `.stop()`, `.restart()`, `.log()`. Its log is printed after
the test, for failure reports.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import settings

from tests import schedule
from treecast.middleware.daemon.process import DaemonProcess

ROOT = Path(__file__).resolve().parent.parent

# No test asserts wall-clock time, and a loaded machine may be slow, so no example has a deadline. Set here,
# as settings() in a test module takes the other values from the profile loaded at that time.
settings.register_profile("treecast", deadline=None)
settings.load_profile("treecast")


class StartDaemon(Protocol):
    def __call__(
        self,
        *flags: str,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
        start: bool = True,
    ) -> DaemonProcess: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--compiled",
        action="store_true",
        help="the hot modules must be the compiled ones; otherwise the run fails at once",
    )
    parser.addoption(
        "--nightly", action="store_true", help="only the tests marked `nightly`; else only others"
    )


def pytest_configure(config: pytest.Config) -> None:
    # If it is set, each daemon compiles all of its modules again, which is two thirds of its start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Tests must not meet a daemon that already runs on this machine.
    os.environ["TREECAST_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="treecast-tests-")
    if config.getoption("--compiled"):
        interpreted = [name for name in _hot_modules() if not _is_compiled(name)]
        if interpreted:
            raise pytest.UsageError(f"not compiled in this installation: {', '.join(interpreted)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nightly = config.getoption("--nightly")
    left_out = [item for item in items if (item.get_closest_marker("nightly") is not None) != nightly]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    items.sort(key=lambda item: schedule.rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Spares the garbage collector the modules and tests, which stay."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> schedule.Parts | None:
    """Returns the scheduler of `--dist loadscope`; None leaves other kinds to pytest-xdist."""
    return schedule.Parts(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["TREECAST_RUNTIME_DIR"], ignore_errors=True)


def _hot_modules() -> list[str]:
    """Returns setup.py's HOT_MODULES as module names."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if ast.unparse(target) == "HOT_MODULES":
                paths = ast.literal_eval(node.value)
                return ["treecast." + path.removesuffix(".py").replace("/", ".") for path in paths]
    raise pytest.UsageError("setup.py has no HOT_MODULES")


def _is_compiled(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


class _Daemons:
    """Starts daemons, and cleans up after all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[DaemonProcess] = []

    def __call__(
        self,
        *flags: str,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
        start: bool = True,
    ) -> DaemonProcess:
        where = data if data is not None else self._folder / f"data{len(self._started)}"
        daemon = DaemonProcess(where, flags, environment=environment)
        self._started.append(daemon)
        return daemon.start() if start else daemon

    def clean_up(self) -> None:
        for number, daemon in enumerate(self._started):
            if daemon.running:
                daemon.stop()
            log = daemon.clean_up()
            print(f"--- log of daemon {number} {' '.join(daemon.flags)}\n{log}", file=sys.stderr)


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    daemons = _Daemons(tmp_path)
    yield daemons
    daemons.clean_up()


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    return start_daemon()


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    daemons = _Daemons(tmp_path_factory.mktemp("shared"))
    yield daemons()
    daemons.clean_up()


def _require(condition: object, reason: str) -> None:
    if condition:
        return
    if os.environ.get("TREECAST_CI") == "1":
        pytest.fail(f"needed in CI: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def require() -> Callable[[object, str], None]:
    """Returns `require(condition, reason)`: skips the test if the condition is false; in CI the test
    fails."""
    return _require


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """Returns `require_tool("kcat")`: the path of a program on this machine."""

    def find(name: str) -> str:
        path = shutil.which(name)
        _require(path, f"{name} is not installed")
        assert path is not None
        return path

    return find
