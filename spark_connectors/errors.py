"""What is told to who wrote the query. Only built-in types: an error crosses from a worker to the driver."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is wrong; the text names it and says what would be right."""


class DataLossError(RuntimeError):
    """Records that the query has not read are gone. The text says which, and how to go on without them."""


class ReadError(RuntimeError):
    """A partition cannot be read."""


class WriteError(RuntimeError):
    """Records cannot be written. The text says why, and what to do."""


class DecodeError(ValueError):
    """A value does not fit the schema. The text says where it is, and how to go on without it."""
