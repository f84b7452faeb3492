"""Tokens to a program as written, by recursive descent. Pure."""

from .declarations import parse

__all__ = ["parse"]
