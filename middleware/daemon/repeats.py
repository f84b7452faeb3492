"""What a disk that refuses makes fail is said rarely: it is many things, and each fails again and again.

`room.RoomWatch` says the whole in one line. Of the parts each kind, which is one log statement, is said once
in a while, with how many were left out since, and without a trace: nothing is wrong with the daemon.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.rarely import Rarely


class DiskRepeats(logging.Filter):
    """For a handler. `clock` in seconds. As many kinds are remembered as there are log statements."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], Rarely] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether it is said; what is said has the refusal in its text."""
        error = _refusal(record)
        if error is None:
            return True
        kind = self._kinds.setdefault((record.name, str(record.msg)), Rarely())
        if not kind.due(self._clock()):
            return False
        text = record.getMessage()
        reason = "" if str(error) in text else f": {error}"
        record.msg, record.args = f"{text}{reason}{kind.more()}", ()
        record.exc_info = record.exc_text = None
        return True


def _refusal(record: logging.LogRecord) -> TreecastError | None:
    """Returns the disk's, where the record is about one."""
    raised = record.exc_info[1] if record.exc_info else None
    given = record.args if isinstance(record.args, tuple) else ()
    for one in (raised, *given):
        if isinstance(one, TreecastError) and one.fault is Fault.STORAGE:
            return one
    return None
