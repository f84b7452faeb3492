"""p4runtime-shell, in its own environment, against `treecast p4 switch`.

    python -m tests.foreign.p4runtime_shell

The environment is made once in `.cache/p4runtime-shell` from the package registry: the shell's protobuf
conflicts with ours. Exit code 0: every step succeeded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.p4.p4runtime.programs import KITCHEN

from treecast.middleware.daemon.process import parse_ready
from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.p4info import build_p4info, to_text

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parents[1] / ".cache" / "p4runtime-shell"
REQUIREMENT = "p4runtime-shell==0.0.6"
SECONDS = 120


def python_of(environment: Path = ENVIRONMENT) -> Path:
    return environment / "bin" / "python"


def make_environment(environment: Path = ENVIRONMENT) -> None:
    """Makes the environment. Raises CalledProcessError if the registry cannot be reached."""
    if (environment / "ready").exists():
        return
    venv.create(environment, with_pip=True, clear=True)
    command = [python_of(environment), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, REQUIREMENT], check=True)
    (environment / "ready").touch()


@contextmanager
def switch() -> Iterator[str]:
    """Starts a switch without ports or a program; yields the address for controllers."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "p4", "switch", "--p4runtime", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield parse_ready(process.stdout.readline().strip())["p4runtime"]
        finally:
            process.terminate()


def run(python: Path) -> subprocess.CompletedProcess[str]:
    """Runs all steps; the output shows how far they got."""
    with switch() as address, tempfile.TemporaryDirectory() as folder:
        p4info, config = Path(folder) / "kitchen.p4info.txtpb", Path(folder) / "kitchen.p4"
        p4info.write_text(to_text(build_p4info(bundle.load(KITCHEN.encode()))))
        config.write_text(KITCHEN)
        script = HERE / "p4runtime_shell_session.py"
        return subprocess.run(
            [python, "-I", script, address, p4info, config],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.p4runtime_shell", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT)
    options = parser.parse_args()
    make_environment(options.environment)
    done = run(python_of(options.environment))
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
