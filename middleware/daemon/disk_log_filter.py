"""Limits repeated log lines about a disk that refuses: many operations fail, each again and again.

`resource_watch.RoomWatch` reports the cause in one line. Of each log statement about a consequence, one line
is logged in a while, with the number left out since then and without a traceback, because the daemon itself
is not at fault.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Entry
from treecast.middleware.model.rarely import Rarely


class DiskRepeats(logging.Filter):
    """A filter for a handler. `clock` in seconds. It remembers one entry per log statement."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], Rarely] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is logged; a logged one has the refusal as its field `error`."""
        error = _refusal(record)
        if error is None:
            return True
        entry = record.msg if isinstance(record.msg, Entry) else Entry(record.getMessage(), {})
        kind = self._kinds.setdefault((record.name, entry.event), Rarely())
        if not kind.due(self._clock()):
            return False
        fields = {"error": error, **entry.fields, "left_out": kind.left_out()}
        record.msg, record.args = Entry(entry.event, fields), ()
        record.exc_info = record.exc_text = None
        return True


def _refusal(record: logging.LogRecord) -> TreecastError | None:
    """Returns the disk's refusal that the record is about, if any."""
    raised = record.exc_info[1] if record.exc_info else None
    given = record.msg.fields.values() if isinstance(record.msg, Entry) else ()
    for one in (raised, *given):
        if isinstance(one, TreecastError) and one.fault is Fault.STORAGE:
            return one
    return None
