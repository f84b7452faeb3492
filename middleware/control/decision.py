"""The result of deciding a command, and checks that several commands share."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from treecast.middleware.api.entries import Change
from treecast.middleware.model.errors import Fault, TreecastError

from .values import Event, ItemWrite

A = TypeVar("A")


class Decision(Struct, Generic[A], frozen=True):
    """A decision. `prolonged`: the host that gets a full lease. `items`: writes of homes, which are not
    watched. `events`: not watched either.
    """

    answer: A
    changes: tuple[Change, ...] = ()
    items: tuple[ItemWrite, ...] = ()
    prolonged: str | None = None
    events: tuple[Event, ...] = ()


def check_size(what: str, text: str, limit: int) -> None:
    """Raises INVALID_REQUEST unless `text` has 1 to `limit` bytes. Names from clients may contain any
    character.
    """
    if not text:
        raise TreecastError(Fault.INVALID_REQUEST, f"{what} is empty")
    size = len(text.encode())
    if size > limit:
        raise TreecastError(Fault.INVALID_REQUEST, f"{what} has {size} bytes; {limit} are allowed")


def check_text(what: str, text: str, limit: int) -> None:
    """Applies `check_size` and refuses control characters, because operators will see the text."""
    check_size(what, text, limit)
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise TreecastError(Fault.INVALID_REQUEST, f"{what} holds control characters; leave them out")


def check_room(what: str, there: int, more: int, limit: int) -> None:
    """Raises POLICY_VIOLATION if `more` would exceed a limit of the coordinator."""
    if there + more > limit:
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"{more} more {what} beside the existing {there} would exceed the coordinator's limit of {limit};"
            " remove some, or raise the limit",
        )
