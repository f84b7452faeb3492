"""The state machine: every pair of state and packet is handled, or refused with its clause."""

from __future__ import annotations

import pytest

from treecast.shims.mqtt import session_table as table


@pytest.mark.parametrize("state", [table.NEW, table.OPEN, table.CLOSED])
def test_every_packet_is_listed_once(state: int) -> None:
    allowed, refused = set(table.ALLOWED[state]), set(table.REFUSED[state])
    assert allowed & refused == set()
    assert allowed | refused == set(range(16))
