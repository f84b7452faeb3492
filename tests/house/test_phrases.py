"""Words of the pages that have a plainer standard term: their number may only fall.

"beside": next to, in addition to, while. "told": reported, sent. "anew": again. "way": path, means.
A page that needs one of them for good reason takes the place of another one. Lower a bound with its count.
"""

from __future__ import annotations

import re

import pytest
from tests.house.prose import REPOSITORY

_HISTORY = ("decisions", "results")  # what was written then stays as it was


def count(word: str) -> int:
    """Count a word in the pages that describe the present."""
    docs = REPOSITORY / "docs"
    pages = [page for page in docs.rglob("*.md") if page.relative_to(docs).parts[0] not in _HISTORY]
    pages += [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "SECURITY.md"]
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    return sum(len(pattern.findall(page.read_text(encoding="utf-8"))) for page in pages)


@pytest.mark.parametrize(("word", "most"), [("beside", 65), ("told", 35), ("anew", 1), ("way", 48)])
def test_a_word_gets_rarer(word: str, most: int) -> None:
    assert count(word) <= most
