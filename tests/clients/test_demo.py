"""`make demo`, with fewer records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.clients, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_loses_nothing():
    command = [sys.executable, "-m", "examples.demo", "--records", "20000", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert results["good"]
    assert results["acknowledged"] == results["stored"] == 20_000
    assert results["read_by_first"] > 0
    assert results["read_by_second"] > 0
    assert results["acknowledged_at_kill"].keys() == {"north", "south"}
    assert min(results["acknowledged_at_kill"].values()) > 0
    assert results["account"]["addressed"] > 0
    faces = ("Kafka", "AMQP", "MQTT")
    assert results["faces"] == {by: dict.fromkeys(faces, 1) for by in faces}
