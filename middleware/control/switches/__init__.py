"""Programs switches: what one shall hold is a value, what to write is a difference, and what it holds is
read back.

Any P4Runtime switch will do: a hardware one, bmv2, or the embedded target.
"""

from .difference import Change, Kind, SwitchDiffers, SwitchRefused, apply, diff
from .local import LocalSwitch
from .session import Program, SwitchSession
from .state import EntryKey, SwitchState

__all__ = [
    "Change",
    "EntryKey",
    "Kind",
    "LocalSwitch",
    "Program",
    "SwitchDiffers",
    "SwitchRefused",
    "SwitchSession",
    "SwitchState",
    "apply",
    "diff",
]
