"""Docstrings and comments are in plain technical English: the worst patterns are refused in every file.

A sentence has its subject first and its verb early. The patterns refuse sentences without a subject, and
phrases that are not the field's terms.
"""

from __future__ import annotations

import re

import pytest
from tests.house.prose import Prose, comments, docstrings, draw, prose, tracked

# Each name states the fault of a matching text.
REFUSED = {
    "no subject": re.compile(
        r"^(Who|Whom|Whose|Whoever|Whatever|What|Where|Of (a|an|the|its|every|each|all)) [^?]*$"
    ),
    "no longer": re.compile(r"\b(is|are) (none|no \w+) any more\b|(?<!there )\bis no more(?= ?[.;:,)]|$)"),
    "limit": re.compile(r"\bas (many|much|few|long|far|late|often)( \w+)? as ((it|they) )?(may|can)\b"),
    "returns": re.compile(
        r"; (whether|answers? (the|how|whether|what|it|a|an))\b|\bAnswers (the|how|whether|what)\b"
    ),
    "again": re.compile(r"(?<![\"`])\banew\b|\b(begun|begins) again\b"),
    "release": re.compile(r"\b[Ll]ets? go of\b|\b(is|are) let go\b"),
    "is not": re.compile(r"\b(is|are) none of (ours|its|theirs|it|them)\b"),
    "exist": re.compile(r"\bthat there (are|is) not\b|\b[Ww]hat there (is|are)\b"),
    "idiom": re.compile(
        r"\bby and by\b|\bsees to it\b|\bmay be had\b|\bcan(not|'t)? be had\b|\bis to be had\b"
    ),
}


def faults(texts: list[Prose]) -> list[str]:
    """Return one line per refused text: its place, the name of the pattern, and its first words."""
    found = list[str]()
    for one in texts:
        first, text = one.text.strip().partition("\n\n")[0], " ".join(one.text.split())
        sentence = re.split(r"(?<=[.:]) ", " ".join(first.split()))[0]
        for name, pattern in REFUSED.items():
            if pattern.search(sentence if name == "no subject" else text):
                found.append(f"{one.path}:{one.line}: {name}: {text[:100]}")
    return found


def test_all_files_stay_in_plain_english() -> None:
    assert faults(prose(tracked())) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Who has heard that it begins, knows it.", "no subject"),
        ("What a packet says of its tree.", "no subject"),
        ("Where its socket cannot be opened, that is no error.", "no subject"),
        ("Of every node, the links.", "no subject"),
        ("The group is none any more.", "no longer"),
        ("There are as many sessions as may be.", "limit"),
        ("It takes as many as it may.", "limit"),
        ("Removes it; whether it was there.", "returns"),
        ("Takes it; answers how many there were.", "returns"),
        ("The topic was made anew.", "again"),
        ("Lets go of the file.", "release"),
        ("A file that is none of ours.", "is not"),
        ("Raises ValueError for ids that there are not.", "exist"),
        ("Raises RuntimeError if it cannot be had.", "idiom"),
        ("Returns what follows the header.", ""),
        ("Returns whether the record passes.", ""),
        ("What now?", ""),
    ],
)
def test_a_pattern_finds_what_it_names_and_leaves_plain_sentences(text: str, name: str) -> None:
    found = [line.split(": ")[1] for line in faults([Prose("x.py", 1, text)])]
    assert found == ([name] if name else [])


SOURCE = '''"""A module."""
# One comment
# of two lines.
x = 1  # beside code
y = 2


class C:
    """A class."""

    def f(self) -> None:
        """Does it."""
        # Why.
'''


def test_docstrings_and_comments_are_found_with_their_lines() -> None:
    assert [(one.line, one.text) for one in docstrings("x.py", SOURCE)] == [
        (1, "A module."),
        (9, "A class."),
        (12, "Does it."),
    ]
    assert [(one.line, one.text) for one in comments("x.py", SOURCE)] == [
        (2, "One comment of two lines."),
        (4, "beside code"),
        (13, "Why."),
    ]


def test_a_draw_is_the_same_for_the_same_seed_and_sorted_by_place() -> None:
    texts = [Prose("x.py", line, str(line)) for line in range(100)]
    drawn = draw(texts, 24, 10)
    assert drawn == draw(texts, 24, 10) != draw(texts, 25, 10)
    assert [one.line for one in drawn] == sorted({one.line for one in drawn})
    assert len(draw(texts, 24, 1000)) == 100
