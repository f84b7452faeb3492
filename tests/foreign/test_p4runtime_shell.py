"""p4runtime-shell drives our endpoint if its environment exists (`make foreign` makes it)."""

from __future__ import annotations

import pytest
from tests.foreign.p4runtime_shell import ENVIRONMENT, python_of, run

pytestmark = pytest.mark.clients


def test_every_step_of_the_shell_succeeds() -> None:
    if not (ENVIRONMENT / "ready").exists():
        pytest.skip("the shell's environment is missing: python -m tests.foreign.p4runtime_shell makes it")
    done = run(python_of())
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= 11
