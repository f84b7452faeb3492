"""`make test` runs each unit test: interpreted, with compiled hot modules, or both."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
# The compiled installation has no PySpark and PyArrow, and its methods call each other directly.
NEEDS = re.compile(r'importorskip\("py(arrow|spark)|compiled (methods|replica)')


def listed(name: str) -> list[str]:
    """Returns the folders and files of a list in the Makefile."""
    (value,) = re.findall(rf"^{name} := ((?:.+\\\n)*.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(value).replace("\\\n", "").split()


def test_both_passes_name_folders_that_exist() -> None:
    """One that only the compiled pass left out would be tested by nobody."""
    makefile = (ROOT / "Makefile").read_text()
    assert all((UNIT / name).exists() for name in listed("COLD") + listed("REPLACING"))
    assert "$(addprefix tests/unit/,$(COLD) $(REPLACING))" in makefile
    assert "tests/unit $(addprefix --ignore tests/unit/,$(COLD)) --compiled" in makefile


def test_what_the_compiled_pass_skips_is_run_interpreted() -> None:
    interpreted = [UNIT / name for name in listed("COLD") + listed("REPLACING")]
    for path in UNIT.rglob("*.py"):
        if NEEDS.search(path.read_text()):
            assert any(map(path.is_relative_to, interpreted)), path
