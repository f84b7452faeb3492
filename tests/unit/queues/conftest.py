"""Virtual hosts in memory."""

from __future__ import annotations

import pytest
from tests.unit.queues.host import Host


@pytest.fixture
def host() -> Host:
    return Host()
