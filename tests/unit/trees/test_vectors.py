"""The programs of label switches: their vectors on both engines, and p4c's verdict if it is installed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from treecast.middleware.dataplane.p4 import PORTS, Runner, Switch, parse_vectors
from treecast.middleware.dataplane.p4files import load_file

PROGRAMS = Path(__file__).resolve().parents[3] / "p4"
NAMES = (
    "switch_port",
    "switch_bitmask",
    "switch_mcgroup",
    "mixed",
    "hops",
    "destinations",
    "hybrid",
    "virtual_trees",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("interpret", [False, True])
def test_vectors(name: str, interpret: bool) -> None:
    program = load_file(PROGRAMS / f"{name}.p4")
    assert [one.name for one in program.tables]
    switch = Switch(program, ports=PORTS, interpret=interpret)
    assert interpret or switch.engine == "generated"
    report = Runner(program, switch).run(parse_vectors((PROGRAMS / f"{name}.stf").read_text(), name))
    assert not report.problems
    assert report.met == report.expected >= 3


@pytest.mark.skipif("TREECAST_P4C" not in os.environ, reason="TREECAST_P4C names no p4c-bm2-ss")
@pytest.mark.parametrize("name", NAMES)
def test_p4c_takes_it_for_bmv2(name: str, tmp_path: Path) -> None:
    """Compiles with p4c itself; tried with 1.2.4."""
    compiler = shlex.split(os.environ["TREECAST_P4C"])
    made = tmp_path / "made.json"
    command = [*compiler, "--std", "p4-16", "-o", str(made), str(PROGRAMS / f"{name}.p4")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert made.stat().st_size > 0
