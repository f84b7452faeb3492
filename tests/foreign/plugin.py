"""A pytest plugin that replaces files missing from the `test` folder of kafka-python's sdist.

The sdist ships `test/integration` but neither `test/__init__.py` nor `test/service.py`, and without the
former the standard library's own `test` package would be found first. It runs inside the suite's process,
imports nothing of Treecast, and ends a test that hangs.
"""

from __future__ import annotations

import os
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

SUITE = os.environ["FOREIGN_SUITE"]
LIMIT_S = int(os.environ.get("FOREIGN_TEST_LIMIT", "60"))


class ExternalService:
    """A broker that is already running, with the methods that the fixtures call."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def dump_logs(self) -> None: ...

    def wait_for(self, pattern: str, timeout: float | None = None) -> bool:
        return True


class SpawnedService:
    """The suite would start its own broker here, with settings that the given one lacks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pytest.skip("needs a broker started by the suite itself")


def _install() -> None:
    package = types.ModuleType("test")
    package.__path__ = [os.path.join(SUITE, "test")]
    service = types.ModuleType("test.service")
    service.ExternalService = ExternalService  # type: ignore[attr-defined]
    service.SpawnedService = SpawnedService  # type: ignore[attr-defined]
    sys.modules["test"], sys.modules["test.service"] = package, service


_install()


class TooLong(Exception):
    """A test ran longer than FOREIGN_TEST_LIMIT seconds."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    def expired(number: int, frame: object) -> None:
        raise TooLong(f"longer than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(LIMIT_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
