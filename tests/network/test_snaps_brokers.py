"""SNAPS' figures with real RabbitMQ servers, short: what arrives, and the bytes on links that carry it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.evaluation.rabbitmq import missing
from treecast.middleware.evaluation.snaps.fig9 import EVEN, spread

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _can_run(require: Callable[[object, str], None]) -> None:
    require(missing() == "", missing())
    require(importlib.util.find_spec("finsy"), "finsy is not installed")


def measured(name: str, *words: str) -> dict[str, dict[str, Any]]:
    """Returns the row of each mode of the only scenario."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "eval", name, "--quick", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["mode"]: row for row in json.loads(done.stdout)["rows"] if "published" in row}
    assert set(rows) == {"classic", "federated", "treecast"}
    for row in rows.values():
        assert (row["loss %"], row["twice"]) == (0, 0), row
    return rows


def test_two_sites_and_a_router() -> None:
    rows = measured("snaps-fig8", "--scenario", "2.6 Mbit/s")
    # Host, router, host: one copy, and with one server none on the way to it.
    assert {mode: row["links"] for mode, row in rows.items()} == dict.fromkeys(rows, 2)


@pytest.mark.nightly
def test_ten_sites_on_the_papers_network() -> None:
    rows = measured("snaps-fig9", "--scenario", "Scen-2")
    assert spread(rows["treecast"]) <= EVEN
    # By unicast a link near the publisher carries several copies.
    assert spread(rows["federated"]) > EVEN
