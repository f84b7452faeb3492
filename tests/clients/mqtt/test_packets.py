"""A few of the random sequences of `tests/foreign/mqtt_packets`, at one host and at two."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.foreign.mqtt_packets.comparison import run
from tests.foreign.sequences import Run

pytestmark = pytest.mark.clients


def test_two_hosts_are_like_one() -> None:
    console = Console(record=True)
    assert run(Run(True, 60, console), range(4)) == [], console.export_text()
