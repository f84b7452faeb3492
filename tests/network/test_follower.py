"""A followed Kafka cluster and hosts in namespaces: bytes that leave the cluster, and a group that moves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.peers.kafka import missing_tools

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "words",
    [
        ("--hosts", "3", "--groups", "2", "--megabytes", "4", "--moves", "3"),
        pytest.param(("--hosts", "8", "--groups", "4", "--moves", "100"), marks=pytest.mark.nightly),
    ],
)
def test_bytes_and_moves(words: tuple[str, ...], require: Callable[[object, str], None]) -> None:
    missing = missing_tools()
    require(not missing, f"Apache Kafka needs {' and '.join(missing)}")
    command = [sys.executable, "-m", "tests.network.follower", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each read once" in done.stdout
