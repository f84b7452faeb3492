"""The reference interpreter: walks a program, plain and slow. Generated code is held against it."""

from .pipeline import Interpreter

__all__ = ["Interpreter"]
