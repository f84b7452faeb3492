"""Installs packages of Treecast, each into an empty environment, and runs a daemon from it.

    python -m tests.install dist/*.whl dist/*.tar.gz       both have to be compiled
    python -m tests.install --interpreted FILE...          TREECAST_PURE=1, and `status` and `doctor` say so

pip fetches the dependencies. The daemon listens on loopback. `make dist` and `make test` run it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from treecast.middleware.daemon.process import DaemonProcess

ROOT = Path(__file__).resolve().parents[2]
RECORD = "one record"


class Refused(Exception):
    """An installed package failed. The text names the step, and what came instead."""


class Environment:
    """An empty virtual environment, and commands in it, which cannot see this process's own packages."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.python = str(folder / "bin" / "python")

    def run(self, *command: str, environment: dict[str, str] | None = None) -> str:
        """Returns the standard output of a command."""
        clean = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("TREECAST_", "PYTHON")) and name != "VIRTUAL_ENV"
        }
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            cwd=self.folder,  # not the repository, whose packages could be imported by accident
            env={**clean, **(environment or {})},
            check=False,
        )
        if done.returncode:
            raise Refused(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def check(package: Path, folder: Path, *, interpreted: bool) -> str:
    """Installs and runs a package; returns a line that describes it. Raises Refused."""
    there = Environment(folder / "environment")
    pure = {"TREECAST_PURE": "1"} if interpreted else {}
    there.run("pip", "install", "--quiet", "--disable-pip-version-check", str(package), environment=pure)
    daemon = DaemonProcess(folder / "data", ["--fsync", "never"], python=there.python)
    try:
        daemon.start()
        return _use(there, daemon, interpreted=interpreted)
    finally:
        if daemon.running:
            daemon.stop()
        daemon.clean_up()


def _use(there: Environment, daemon: DaemonProcess, *, interpreted: bool) -> str:
    control = {"TREECAST_CONTROL": daemon.control, "TREECAST_KAFKA": daemon.kafka}
    status = json.loads(there.run("treecast", "status", "--json", environment=control))
    told = _finding(there, control)
    _compare(status, told, interpreted=interpreted)
    payload = there.folder / "payload"
    payload.write_text(RECORD + "\n")
    there.run("treecast", "produce", "first", "--file", str(payload), environment=control)
    read = there.run("treecast", "consume", "first", "--beginning", "--count", "1", environment=control)
    if RECORD not in read:
        raise Refused(f"consume printed {read!r}")
    form = f"{len(status.get('compiled_modules', []))} modules of the daemon compiled"
    return f"{status['version']}: {form}; one record produced and consumed"


def _finding(there: Environment, control: dict[str, str]) -> dict[str, str]:
    """Returns doctor's finding about the hot modules."""
    settings = {**control, "TREECAST_DATA": str(there.folder / "other"), "TREECAST_ADMIN": "off"}
    found: list[dict[str, str]] = json.loads(there.run("treecast", "doctor", "--json", environment=settings))
    return next(finding for finding in found if finding["check"] == "hot modules")


def _compare(status: dict[str, Any], told: dict[str, str], *, interpreted: bool) -> None:
    compiled = len(status.get("compiled_modules", []))
    if interpreted:
        for said in (status["why_interpreted"], told["detail"]):
            if "TREECAST_PURE" not in said:
                raise Refused(f"interpreted without a reason: {said!r}")
        if compiled:
            raise Refused(f"{compiled} modules are compiled despite TREECAST_PURE=1")
    elif not compiled or told["level"] != "ok":
        raise Refused(f"not compiled: {told['detail']}")
    elif told["detail"] != f"{compiled} compiled":
        raise Refused(f"status says {compiled} compiled, doctor {told['detail']!r}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.install", description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--interpreted", action="store_true", help="install with TREECAST_PURE=1")
    arguments = parser.parse_args()
    failed = False
    for package in arguments.packages:
        with tempfile.TemporaryDirectory(prefix="treecast-install-") as folder:
            try:
                said = check(package.absolute(), Path(folder), interpreted=arguments.interpreted)
                print(f"{package.name}: {said}", flush=True)
            except Refused as error:
                failed = True
                print(f"{package.name}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
