"""Code generation: a program as Python source, run by exec. Needs no compiler at run time."""

from .engine import Generated
from .layout import Unsupported

__all__ = ["Generated", "Unsupported"]
