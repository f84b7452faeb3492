"""One part of many that raises does not stop the others: it is counted and logged, and the loop goes on."""

from __future__ import annotations

import logging

from .logs import Log


class Isolation:
    """Counts errors by the kind of part that raised them, in a dictionary. Logs them with their traces: the
    1st of a kind, the 2nd, the 4th and so on, because what raises once may do so in every turn."""

    def __init__(self, counted: dict[str, int], log: Log, event: str) -> None:
        """`event` is that of each log line."""
        self.counted = counted
        self._log = log
        self._event = event

    def note(self, part: str, error: Exception, where: object = None) -> None:
        """Counts an error. `where` names the part among those of its kind, for the log."""
        before = self.counted.get(part, 0)
        self.counted[part] = before + 1
        if (before + 1).bit_length() > before.bit_length():
            fields: dict[str, object] = {"part": part, "where": where, "count": before + 1, "error": error}
            self._log.at(logging.ERROR, self._event, fields, error)
