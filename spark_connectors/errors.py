"""Errors for the author of a query. Only built-in field types: an error crosses from a worker to the
driver.
"""

from __future__ import annotations


class OptionError(ValueError):
    """An option is wrong; the text names it and the correction."""


class DataLossError(RuntimeError):
    """Unread records are gone. The text states which, and how to continue without them."""


class ReadError(RuntimeError):
    """A partition cannot be read."""


class WriteError(RuntimeError):
    """Records cannot be written. The text states the reason and the next step."""


class DecodeError(ValueError):
    """A value does not fit the schema. The text states its place, and how to continue without it."""
