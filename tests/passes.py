"""The tests that the first pass of `make test` leaves to its second pass, with compiled hot modules.

Most unit tests run twice. In the first pass, interpreted, a property has a quarter of its examples, and a
test marked `compiled_suffices` does not run. Other commands (`make unit`, `pytest FILE`) run all in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

UNIT = Path(__file__).resolve().parent / "unit"
SHARE = 4
FEW = 10  # examples that remain in any case


def leave_to_the_second_pass(items: list[pytest.Item], once: Iterable[str]) -> list[pytest.Item]:
    """Returns the tests to leave out; shortens others. `once`: folders and files that have no second pass."""
    cold = [UNIT / name for name in once]
    shortened: set[int] = set()
    left_out = []
    for item in items:
        if not item.path.is_relative_to(UNIT) or any(map(item.path.is_relative_to, cold)):
            continue
        if item.get_closest_marker("compiled_suffices") is not None:
            left_out.append(item)
            continue
        owner = _owner(item)
        if owner is not None and id(owner) not in shortened:  # the items of a parametrized test share it
            shortened.add(id(owner))
            fewer_examples(owner)
    return left_out


def _owner(item: pytest.Item) -> Any:
    """Returns the object that has the test's settings: its function or state machine; None if no property."""
    machine = getattr(item, "cls", None)
    if isinstance(getattr(machine, "settings", None), settings):
        return machine
    test = getattr(item, "obj", None)
    return getattr(test, "__func__", test) if is_hypothesis_test(test) else None


def fewer_examples(owner: Any) -> None:
    """Sets a quarter of the examples of a property, be it a function or the test case of a state machine."""
    name = "settings" if isinstance(owner, type) else "_hypothesis_internal_use_settings"
    before: settings = getattr(owner, name)
    count = max(before.max_examples // SHARE, min(before.max_examples, FEW))
    setattr(owner, name, settings(before, max_examples=count))
