"""Strategies and makers that the tests of `wire` share, as fixtures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from treecast.middleware.model.records import Record

Records = st.SearchStrategy[list[Record]]

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_BYTES = st.none() | st.binary(max_size=40)
_HEADERS = st.lists(st.tuples(_TEXT, _BYTES), max_size=3).map(tuple)
_TIMES = st.integers(0, 2**45)


@pytest.fixture(scope="session")
def records() -> Records:
    """Draws lists of 1 to 20 records without offsets."""
    one = st.builds(Record, key=_BYTES, value=_BYTES, headers=_HEADERS, timestamp=_TIMES)
    return st.lists(one, min_size=1, max_size=20)


@pytest.fixture(scope="session")
def mutations() -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """Draws changes of bytes: some are replaced, removed or inserted, or the end is cut off."""
    where, byte = st.floats(0, 1, exclude_max=True), st.integers(0, 255)

    def change(at: float, value: int) -> Callable[[bytes], bytes]:
        def apply(data: bytes) -> bytes:
            index = int(at * len(data))
            return data[:index] + bytes([value]) + data[index + 1 :]

        return apply

    def insert(at: float, value: int) -> Callable[[bytes], bytes]:
        return lambda data: data[: int(at * len(data))] + bytes([value]) + data[int(at * len(data)) :]

    def remove(at: float, _: int) -> Callable[[bytes], bytes]:
        return lambda data: data[: int(at * len(data))] + data[int(at * len(data)) + 1 :]

    def cut(at: float, _: int) -> Callable[[bytes], bytes]:
        return lambda data: data[: int(at * len(data))]

    step = st.builds(
        lambda kind, at, value: kind(at, value), st.sampled_from([change, insert, remove, cut]), where, byte
    )

    def chain(steps: list[Callable[[bytes], bytes]]) -> Callable[[bytes], bytes]:
        def apply(data: bytes) -> bytes:
            for one in steps:
                data = one(data)
            return data

        return apply

    return st.lists(step, min_size=1, max_size=3).map(chain)
