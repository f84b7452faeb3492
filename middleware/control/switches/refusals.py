"""Why a switch cannot be brought to a state."""

from __future__ import annotations

from .difference import Change


class SwitchRefused(Exception):
    """The switch does not do what is asked: another controller is primary, or it refuses a write."""


class SwitchDiffers(Exception):
    """The switch has acknowledged everything, and holds something else. `changes` would mend it."""

    def __init__(self, name: str, changes: tuple[Change, ...]) -> None:
        first = changes[0]
        super().__init__(
            f"{name} differs from what was written in {len(changes)} places, the first:"
            f" {first.kind.value} {first.field} {first.key}"
        )
        self.changes = changes
