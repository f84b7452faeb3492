"""What is expected where something is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from treecast.middleware.model.errors import Fault, TreecastError


@contextmanager
def refusal(fault: Fault) -> Iterator[None]:
    """The block is refused for just this reason."""
    with pytest.raises(TreecastError) as caught:
        yield
    assert caught.value.fault is fault
