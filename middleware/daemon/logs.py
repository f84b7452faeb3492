"""Structured logs on stderr: structlog on top of the standard library's logging, which other packages use."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from treecast.middleware.model.logs import Entry

from .disk_log_filter import DiskRepeats
from .settings import LogFormat, LogLevel, Settings

if TYPE_CHECKING:
    from structlog.typing import Processor


def _import_structlog() -> Any:
    """Imports structlog without rich, which it would load to render tracebacks, at a cost of 60 ms
    and 5 MB.
    """
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    return structlog


def configure(settings: Settings) -> None:
    """Sends all records of `logging`, from the chosen level on, to stderr in the chosen format."""
    structlog = _import_structlog()
    console = settings.log_format is LogFormat.CONSOLE or (
        settings.log_format is LogFormat.AUTO and sys.stderr.isatty()
    )
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _unfold,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(DiskRepeats())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.getLogger("aiohttp.server").addFilter(_is_own_error)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_level(settings.log_level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared[:4],
            structlog.stdlib.PositionalArgumentsFormatter(),
            shared[5],
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _is_own_error(record: logging.LogRecord) -> bool:
    """Leaves faults of callers out of aiohttp's log: no HTTP, an end within a body. They would fill it."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not (
        issubclass(kind, ConnectionError) or kind.__module__ == "aiohttp.http_exceptions"
    )


def _unfold(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Gives an entry's event and each of its fields a key of its own."""
    record = line.get("_record")
    if record is not None and isinstance(record.msg, Entry):
        line["event"] = record.msg.event
        line.update({key: _plain(value) for key, value in record.msg.fields.items()})
    return line


def _plain(value: object) -> object:
    """Numbers stay numbers; all other values become text."""
    return value if isinstance(value, bool | int | float) else str(value)


def _level(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.value.upper()]
