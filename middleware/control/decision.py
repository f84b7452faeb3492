"""What deciding a command gives, and the checks that several commands share."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from treecast.middleware.api.entries import Change
from treecast.middleware.model.errors import Fault, TreecastError

from .values import ItemWrite

A = TypeVar("A")


class Decision(Struct, Generic[A], frozen=True):
    """`prolonged`: the host whose lease restarts. `items`: what homes wrote, which nobody watches."""

    answer: A
    changes: tuple[Change, ...] = ()
    items: tuple[ItemWrite, ...] = ()
    prolonged: str | None = None


def check_size(what: str, text: str, limit: int) -> None:
    """Raises INVALID_REQUEST unless `text` has 1 to `limit` bytes. What clients name may hold any
    character.
    """
    if not text:
        raise TreecastError(Fault.INVALID_REQUEST, f"{what} is empty")
    size = len(text.encode())
    if size > limit:
        raise TreecastError(Fault.INVALID_REQUEST, f"{what} has {size} bytes; {limit} are allowed")


def check_text(what: str, text: str, limit: int) -> None:
    """As `check_size`, and no control characters: it will be shown to operators."""
    check_size(what, text, limit)
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise TreecastError(Fault.INVALID_REQUEST, f"{what} holds control characters; leave them out")


def check_room(what: str, there: int, more: int, limit: int) -> None:
    """Raises POLICY_VIOLATION if `more` would pass a bound of the coordinator."""
    if there + more > limit:
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"{more} more {what} than the {there} there are would pass the coordinator's bound of {limit};"
            " remove some, or raise the bound",
        )
