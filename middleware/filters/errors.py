"""The error in a filter's text, with its position."""

from __future__ import annotations

_SHOWN = 72  # columns of the line that a message shows


class FilterError(ValueError):
    """An error with its `reason` at `position`, a character index in `text`. As a string: reason, line,
    caret.
    """

    def __init__(self, reason: str, text: str, position: int) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        super().__init__(f"{reason}\n{_pointed(text, position)}")

    @property
    def line(self) -> int:
        """The line of the position; the first is 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """The column of the position; the first is 1."""
        return self.position - self.text.rfind("\n", 0, self.position)


def _pointed(text: str, position: int) -> str:
    """Returns the line that holds `position`, shortened around it, and a caret below."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    column = position - start
    first = max(0, min(column - _SHOWN // 2, len(line) - _SHOWN))
    shown = line[first : first + _SHOWN].replace("\t", " ")
    return f"  {shown}\n  {' ' * (column - first)}^"
