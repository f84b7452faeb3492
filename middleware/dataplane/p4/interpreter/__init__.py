"""The reference interpreter: walks a program, plain and slow. Tests compare generated code with it."""

from .pipeline import Interpreter

__all__ = ["Interpreter"]
