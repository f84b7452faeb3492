"""The ends of calls, listeners and attempts to connect, for `channels`."""

from __future__ import annotations

import os
import ssl
from asyncio import Future
from collections.abc import Callable
from typing import cast

from treecast.middleware.model.counters import ChannelCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .outgoing import Call
from .values import Answer, ChannelError

_log = Log("treecast.channel")


Then = Callable[[Answer | TreecastError], None]  # takes the outcome of a call


class Outcomes:
    """Ends calls, each once. `waiting`: the number of calls that have not ended."""

    def __init__(self, counters: ChannelCounters) -> None:
        self.waiting = 0
        self._counters = counters

    def fail(self, call: Call, fault: Fault, detail: str, sent: bool) -> None:
        if sent:
            self._counters.failed_unknown += 1
        else:
            self._counters.failed_unsent += 1
        self.finish(call, ChannelError(fault, detail, sent))

    def finish(self, call: Call, outcome: Answer | TreecastError) -> None:
        then = cast("Then | None", call.waiter)
        self.over(call)
        if then is not None:
            tell(then, outcome)

    def over(self, call: Call) -> None:
        call.wanted = False
        call.drop()
        if call.waiter is not None:
            call.waiter = None
            self.waiting -= 1


def resolve(future: Future[Answer], outcome: Answer | TreecastError) -> None:
    """Ends the future of a call, unless its caller has cancelled it."""
    if future.done():
        return
    if isinstance(outcome, TreecastError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def tell(listener: Callable[..., None], *what: object) -> None:
    """Calls a listener. Its failure does not end a connection."""
    try:
        listener(*what)
    except Exception:
        _log.exception("listener of the channels failed")


def why(error: OSError, seconds: float) -> str:
    """Returns why a connection was not made within `seconds`; a time-out of asyncio has no text."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or f"nobody answered within {seconds:g} s"


def number_of(error: OSError) -> int:
    """Returns the errno of an attempt to connect; 0: it has none. OpenSSL's numbers are others."""
    return 0 if isinstance(error, ssl.SSLError) else error.errno or 0
