"""A capture of packets between secured hosts, and callers of the admin address."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SITE = Path(__file__).with_name("secured_site.py")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _namespaces(require: Callable[[object, str], None]) -> None:
    usable = os.geteuid() == 0 and shutil.which("unshare") is not None
    require(usable, "a network namespace needs root and unshare")


def site(folder: Path, kind: str) -> dict[str, object]:
    command = ["unshare", "-n", sys.executable, str(SITE), str(folder), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_capture_shows_no_payload(tmp_path: Path) -> None:
    found = site(tmp_path, "secured")
    assert found["packets"]
    assert not found["seen"]
    assert found["stranger"] == "nothing"
    assert found["host"] == "HTTP/1.0 200 OK"


def test_the_same_capture_of_an_open_cluster_shows_it(tmp_path: Path) -> None:
    """So the one above is able to see."""
    found = site(tmp_path, "open")
    assert found["seen"]
