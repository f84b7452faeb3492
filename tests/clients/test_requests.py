"""A few of the random sequences of `tests/foreign/kafka_requests`, at one host and at another one."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.foreign.kafka_requests.comparison import Comparison

pytestmark = pytest.mark.clients


def test_topics_of_another_host_are_like_those_of_this_one() -> None:
    console = Console(record=True)
    assert Comparison(True, 120, console).run(range(5)) == [], console.export_text()
