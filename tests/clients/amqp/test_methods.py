"""A few of the random sequences of `tests/foreign/amqp_methods.py`, at one host and at another one."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.foreign.amqp_methods import run
from tests.foreign.sequences import Run

pytestmark = pytest.mark.clients


def test_queues_of_another_host_are_like_those_of_this_one() -> None:
    console = Console(record=True)
    assert run(Run(True, 120, console), range(5)) == [], console.export_text()
