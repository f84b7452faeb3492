"""What is told to who wrote the query. Only built-in types: an error crosses from a worker to the driver."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is wrong; the text names it and says what would be right."""


class DataLossError(RuntimeError):
    """Records that the query has not read are gone. The text says which, and how to go on without them."""


class ReadError(RuntimeError):
    """A partition cannot be read."""
