"""The agents' crash run, short; and a test that it detects errors."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from treecast.middleware.evaluation.rabbitmq import missing

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = "agents_crash_run.py"


@pytest.fixture(autouse=True)
def _can_run(require):
    require(sys.platform == "linux" and os.geteuid() == 0, "network namespaces need root")
    require(importlib.util.find_spec("pyroute2"), "pyroute2 is not installed")
    require(importlib.util.find_spec("pika"), "pika is not installed")
    require(missing() == "", missing())


@pytest.mark.parametrize("faults", [4, pytest.param(14, marks=pytest.mark.nightly)])
def test_faults_in_two_sessions(fault_run, tmp_path, faults):
    """The first four: an agent, a server, the coordinator, a link."""
    arguments = ("--seed", "11", "--cut", "3")
    code, first, said = fault_run(SCRIPT, tmp_path, "--count", "1", *arguments)
    assert (code, first["problems"], first["done"]) == (0, [], 1), said
    code, all_of_them, said = fault_run(SCRIPT, tmp_path, "--count", str(faults), *arguments)
    assert (code, all_of_them["problems"], all_of_them["done"]) == (0, [], faults), said
    assert all_of_them["kills"] >= faults
    assert 0 < all_of_them["counts"]["confirmed"] <= all_of_them["counts"]["consumed"]


def test_a_message_that_is_missing_is_found_out(fault_run, tmp_path):
    arguments = ("--count", "1", "--seed", "12", "--damage", "0", "--patience", "10")
    code, state, _ = fault_run(SCRIPT, tmp_path, *arguments)
    assert code == 1
    assert any("lost" in problem for problem in state["problems"]), state["problems"]
