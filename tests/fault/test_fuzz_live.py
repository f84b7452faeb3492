"""A short form of `python -m tests.fuzz.live`: random bytes that are almost right, at a real daemon."""

from __future__ import annotations

import sys

import pytest
from tests.fuzz.live.__main__ import FACES, run

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("face", FACES)
def test_nothing_comes_of_almost_right_bytes(face: str) -> None:
    found = run(face, 6.0, 3, sys.executable, times=False)
    assert found["problems"] == []
    assert sum(found["outcomes"].values()) > 50
