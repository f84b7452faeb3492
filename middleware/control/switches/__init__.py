"""Programming of switches: the target state is a value, the writes are a difference, and the result is read
back.

Works with any P4Runtime switch: a hardware one, bmv2, or the embedded target.
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
