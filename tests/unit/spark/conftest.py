"""Removes what a test of Spark's connectors leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from treecast.spark_connectors.links import LINKS


@pytest.fixture(autouse=True)
def _no_links_are_left() -> Iterator[None]:
    yield
    LINKS.close()
