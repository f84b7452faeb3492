"""Runs a daemon in the foreground, until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import sys
import termios
from collections.abc import Callable

from treecast.middleware.model.logs import Log

from . import logs, tuning
from .config import Loaded
from .daemon import Daemon
from .file_permissions import keep_private
from .listeners import StartError

_log = Log(__name__)
FAILED = 1
_STDIN = 0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(loaded: Loaded) -> int:
    """Serves until SIGTERM or SIGINT and returns the exit code. Prints one ready line to stdout."""
    keep_private()
    tuning.tune_malloc()
    tuning.raise_open_files()
    logs.configure(loaded.settings)
    for remark in loaded.remarks:
        _log.warning("remark on the settings", detail=remark)
    with asyncio.Runner(loop_factory=tuning.new_event_loop) as runner:
        return runner.run(_serve(loaded))


async def _serve(loaded: Loaded) -> int:
    signals = Signals()
    daemon = Daemon(loaded.settings)
    try:
        if not await _started(daemon, signals):
            return 0
    except StartError as error:
        print(f"treecast up: {error}", file=sys.stderr)
        return FAILED
    say(daemon.now_serving())
    signals.read_again = daemon.read_again
    tuning.freeze_heap()
    await signals.first.wait()
    _log.info("stopping; another signal stops at once")
    closing = asyncio.create_task(daemon.close(loaded.settings.shutdown_grace_ms / 1000))
    hurry = asyncio.create_task(signals.second.wait())
    await asyncio.wait((closing, hurry), return_when=asyncio.FIRST_COMPLETED)
    if not closing.done():
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await daemon.close(0.0)
    else:
        closing.result()
    hurry.cancel()
    _log.info("stopped")
    return 0


async def _started(daemon: Daemon, signals: Signals) -> bool:
    """Starts the daemon. Returns False if a signal came first; everything is then closed again."""
    starting = asyncio.create_task(daemon.start())
    asked = asyncio.create_task(signals.first.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        _log.info("stopped before serving")
        return False
    starting.result()
    return True


class Signals:
    """SIGTERM and SIGINT: the first requests an orderly end, the second a quick one. SIGHUP: files are read
    again, or, when the terminal of the daemon has gone, an end."""

    def __init__(self) -> None:
        self.read_again: Callable[[], None] = _not_yet
        self._terminal = has_terminal()
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._received)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    def _hung_up(self) -> None:
        if self._terminal and not has_terminal():
            self._received()
        else:
            self.read_again()

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


def _not_yet() -> None:
    _log.info("nothing to read again before the daemon serves", signal="SIGHUP")


def has_terminal() -> bool:
    """Whether standard input is a terminal. One that was closed answers nothing any more."""
    try:
        termios.tcgetattr(_STDIN)
    except (OSError, termios.error):
        return False
    return True


def say(line: str) -> None:
    """Prints a line to the process that started the daemon, if it still reads."""
    try:
        print(line, flush=True)
    except OSError:
        _log.warning("standard output is closed; the ready line was not read", line=line)
