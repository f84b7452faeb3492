"""Tokens to a syntax tree, by recursive descent. Pure."""

from .declarations import parse

__all__ = ["parse"]
