"""Outcomes of calls, listeners and attempts to connect: small functions of `channels`."""

from __future__ import annotations

import os
import ssl
from asyncio import Future
from collections.abc import Callable

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from .values import Answer

_log = Log("treecast.channel")


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
