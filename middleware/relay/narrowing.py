"""Filters that travel with interest: what no subscriber of a host wants does not leave for that host.

Beside a pattern, a host announces the filters of its wishes for it, each as a pattern of its own:
`$only / FILTER / pattern...`. It does so only while all its wishes for the pattern have one, and while these
are few. Another host then sends it what passes one of them. To a host of an earlier version these are
patterns of topics that nobody publishes to: it sends all messages of the pattern, as before.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.wishes import Pattern, Wish

ONLY: Final = "$only"
MOST: Final = 64  # filters of one pattern that are announced
LONGEST: Final = 16_384  # characters of all of them


class Narrowing:
    """The filters of this host's wishes, by pattern."""

    def __init__(self) -> None:
        self._texts: dict[Pattern, dict[str, None]] = {}
        self._open: set[Pattern] = set()  # with a wish that has no filter

    def add(self, wish: Wish) -> tuple[list[Pattern], list[Pattern]]:
        """Takes note of a wish that is new. Returns the patterns to announce, and those to take back."""
        before = self.announced(wish.pattern)
        if wish.content is None:
            self._open.add(wish.pattern)
        else:
            self._texts.setdefault(wish.pattern, {})[wish.content.text] = None
        return self._changed(wish.pattern, before)

    def remove(self, wish: Wish) -> tuple[list[Pattern], list[Pattern]]:
        """Forgets a wish. Returns as `add` does."""
        before = self.announced(wish.pattern)
        if wish.content is None:
            self._open.discard(wish.pattern)
        else:
            texts = self._texts[wish.pattern]
            del texts[wish.content.text]
            if not texts:
                del self._texts[wish.pattern]
        return self._changed(wish.pattern, before)

    def announced(self, pattern: Pattern) -> list[Pattern]:
        """Returns what is announced beside a pattern."""
        texts = self._texts.get(pattern)
        if texts is None or pattern in self._open or len(texts) > MOST or sum(map(len, texts)) > LONGEST:
            return []
        return [(ONLY, text, *pattern) for text in texts]

    def all(self) -> list[Pattern]:
        return [one for pattern in self._texts for one in self.announced(pattern)]

    def _changed(self, pattern: Pattern, before: list[Pattern]) -> tuple[list[Pattern], list[Pattern]]:
        after = self.announced(pattern)
        had, has = set(before), set(after)
        return [one for one in after if one not in had], [one for one in before if one not in has]


def narrowed(pattern: Pattern) -> tuple[str, Pattern] | None:
    """Returns (filter, pattern) of an announced filter; None if it is another pattern."""
    return (pattern[1], pattern[2:]) if len(pattern) > 2 and pattern[0] == ONLY else None
