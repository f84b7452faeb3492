"""Tables of state machines."""

from __future__ import annotations

import pytest

from treecast.middleware.model.transitions import transitions


def test_rows_of_events_become_columns_of_states() -> None:
    table = transitions("ab", {"go": ("b", None), "back": (None, "a")})
    assert {state: dict(entries) for state, entries in table.items()} == {
        "a": {"go": "b", "back": None},
        "b": {"go": None, "back": "a"},
    }


@pytest.mark.parametrize("row", [("b",), ("b", None, None)])
def test_a_row_that_does_not_fit_the_states_is_refused(row: tuple[str | None, ...]) -> None:
    with pytest.raises(ValueError, match="zip"):
        transitions("ab", {"go": row})
