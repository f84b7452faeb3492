"""Tells damaged JSON apart, for all readers of records: msgspec's ways to refuse bytes, and what it skips."""

from __future__ import annotations

from typing import Final

import msgspec

DAMAGED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it cannot decode. Text that is not UTF-8 is no DecodeError."""


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8. msgspec does not check this of strings that it skips."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
