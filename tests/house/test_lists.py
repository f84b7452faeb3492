"""Lists in columns stay lists: a reflow that joins their rows into prose is found.

A row is torn if the row before it is full, and it begins at the margin with words that are no key of the
list, and none of its columns is where other rows have theirs.
"""

from __future__ import annotations

import re

import pytest
from tests.house.prose import REPOSITORY, docstrings, tracked

_MARGIN = "    "
_GAP = re.compile(r"(?<=\S) {3,}(?=[^\s#])")
_KEY = re.compile(r" {4}\S+  ")
_FULL = 100  # a reflow breaks lines between this column and the limit


def torn(text: str) -> list[str]:
    """Return the torn rows of the indented blocks of a docstring."""
    found, block = list[str](), list[str]()
    for line in [*text.split("\n"), ""]:
        if line.startswith(_MARGIN):
            block.append(line)
            continue
        starts = [{gap.end() for gap in _GAP.finditer(row)} for row in block]
        for number in range(1, len(block)):
            before, row = block[number - 1], block[number]
            others = set[int]().union(*starts[:number], *starts[number + 1 :])
            first = row.split()[0]
            key = bool(_KEY.match(row)) or first == block[0].split()[0]
            at_margin, full = row[len(_MARGIN)] != " ", len(before) + 1 + len(first) > _FULL
            if starts[0] and at_margin and full and not key and not starts[number] & others:
                found.append(row)
        block = []
    return found


def test_no_list_was_joined_into_prose() -> None:
    files = [(path, (REPOSITORY / path).read_text()) for path in tracked()]
    texts = [one for path, source in files for one in docstrings(path, source)]
    assert [f"{one.path}:{one.line}: {row}" for one in texts for row in torn(one.text)] == []


LIST = """In this order:

    place    outgoing messages get their positions in the streams to other hosts
    store    each store writes the turn's data with one call, and promised messages go to their own stores
    force    the disk is waited for; requests that arrive meanwhile belong
             to the next turn
"""
JOINED = """In this order:

    place    outgoing messages get their positions in the streams to other hosts; promised ones go to the
    stores store    each store writes the turn's data with one call force    the disk is waited for; all
    requests that arrive meanwhile belong
             to the next turn
"""
CONTINUED = """A program.

    python -m tests.foreign.p4_samples --suites DIR        DIR holds checkouts of p4lang/p4c and of the
    p4lang/tutorials
"""


@pytest.mark.parametrize(("text", "count"), [(LIST, 0), (JOINED, 2), (CONTINUED, 1)])
def test_a_joined_list_is_found_and_a_whole_one_is_not(text: str, count: int) -> None:
    assert len(torn(text)) == count
