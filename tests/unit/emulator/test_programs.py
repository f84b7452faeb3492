"""Test vectors of the programs of p4/ that only the emulator uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from treecast.middleware.dataplane.p4 import PORTS, Runner, Switch, parse_vectors
from treecast.middleware.evaluation.stare.programs import program

VECTORS = Path(__file__).resolve().parents[3] / "p4"


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("name", ["address_multicast", "broker_multicast"])
def test_the_vectors(name: str, interpret: bool) -> None:
    switch = Switch(program(name), ports=PORTS, interpret=interpret)
    vectors = VECTORS / f"{name}.stf"
    report = Runner(program(name), switch).run(parse_vectors(vectors.read_text(), str(vectors)))
    assert not report.problems
    assert report.met > 2
