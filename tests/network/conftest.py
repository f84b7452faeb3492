"""Labs for tests: hosts, routers and bridges as network namespaces, removed after the test.

| fixture | meaning                                                                                 |
| ------- | --------------------------------------------------------------------------------------- |
| `lab`   | `lab(description)` builds a lab and returns a `Lab`; takes a description, TOML or a path to it |

Without root, or without pyroute2, these tests are skipped; with TREECAST_CI=1 they fail instead.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from treecast.middleware.dataplane.lab.description import Description, parse
from treecast.middleware.dataplane.lab.lab import Lab


class StartLab(Protocol):
    def __call__(self, described: Description | Path | str, *, seed: int = 1) -> Lab: ...


def read(described: Description | Path | str) -> Description:
    if isinstance(described, Description):
        return described
    if isinstance(described, Path):
        return parse(described.read_text(), str(described))
    return parse(described, "the test's lab")


@pytest.fixture(autouse=True)
def _can_make_namespaces(require: Callable[[object, str], None]) -> None:
    require(sys.platform == "linux" and os.geteuid() == 0, "network namespaces need root")
    require(importlib.util.find_spec("pyroute2"), "pyroute2 is not installed")


@pytest.fixture
def lab(_can_make_namespaces: None) -> Iterator[StartLab]:
    with contextlib.ExitStack() as labs:

        def start(described: Description | Path | str, *, seed: int = 1) -> Lab:
            return labs.enter_context(Lab.up(read(described), seed=seed))

        yield start
