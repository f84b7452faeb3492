"""Expectations about refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from treecast.middleware.model.errors import Fault, TreecastError


@contextmanager
def refusal(fault: Fault) -> Iterator[None]:
    """Expects the block to be refused for exactly this reason."""
    with pytest.raises(TreecastError) as caught:
        yield
    assert caught.value.fault is fault
