"""Log lines: a short constant event, and its values as fields.

    _log = Log(__name__)
    _log.warning("host cannot be reached", host=3, error=error)

The daemon's log shows each field under its own key (`daemon/logs.py`). A handler that knows only text shows
`host cannot be reached: host=3, error=...`. A test in tests/house checks that events are constant.
"""

from __future__ import annotations

import logging


class Entry:
    """The content of a line. Its text is the event with the fields behind it; None leaves a field out."""

    def __init__(self, event: str, fields: dict[str, object]) -> None:
        self.event = event
        self.fields = {key: value for key, value in fields.items() if value is not None}

    def __str__(self) -> str:
        if not self.fields:
            return self.event
        return f"{self.event}: {', '.join([f'{key}={value}' for key, value in self.fields.items()])}"


class Log:
    """A logger of the standard library that takes events with fields. A field's value may be any object; its
    text is made when the line is written.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def at(
        self, level: int, event: str, fields: dict[str, object], trace: BaseException | None = None
    ) -> None:
        """Logs with a level of `logging`, and with the traceback of an error if there is one."""
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Entry(event, fields), exc_info=trace, stacklevel=3)

    def debug(self, event: str, /, **fields: object) -> None:
        self.at(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self.at(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self.at(logging.WARNING, event, fields)

    def error(self, event: str, /, *, trace: BaseException | None = None, **fields: object) -> None:
        """Logs an error, with the traceback of `trace`."""
        self.at(logging.ERROR, event, fields, trace)

    def exception(self, event: str, /, **fields: object) -> None:
        """Logs an error with the traceback of the exception being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error(Entry(event, fields), exc_info=True, stacklevel=2)

    def critical(self, event: str, /, **fields: object) -> None:
        self.at(logging.CRITICAL, event, fields)
