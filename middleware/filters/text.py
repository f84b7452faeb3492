"""The printer: a filter tree to text that parses back into the same tree."""

from __future__ import annotations

import re

from .tokens import KEYWORDS
from .tree import Aggregate, And, Attribute, Constraint, Field, Filter, Not, Or, Scalar

_PLAIN = re.compile(r"[^\W\d][\w-]*\Z")
_LOOSE, _OR, _AND, _TIGHT = range(4)  # how tightly the surrounding expression binds


def to_text(tree: Filter) -> str:
    """Returns the filter in the language's plainest spelling: words for logic, quoted strings."""
    return _text(tree, _LOOSE)


def _text(tree: Filter, around: int) -> str:
    match tree:
        case Constraint(attribute, relation, constant):
            return f"{_attribute(attribute)} {relation.value} {_constant(constant)}"
        case Not(part):
            return f"not {_text(part, _TIGHT)}"
        case And(parts):
            return _joined(parts, "and", _AND, around) if parts else "true"
        case Or(parts):
            return _joined(parts, "or", _OR, around) if parts else "false"


def _joined(parts: tuple[Filter, ...], word: str, binds: int, around: int) -> str:
    text = f" {word} ".join(_text(part, binds) for part in parts)
    return f"({text})" if around >= binds else text


def _attribute(attribute: Attribute) -> str:
    match attribute:
        case Field(path):
            return ".".join(_name(name) for name in path)
        case Aggregate(function, arguments):
            return f"{_name(function)}({', '.join(_attribute(argument) for argument in arguments)})"


def _name(name: str) -> str:
    return name if _PLAIN.match(name) and name.lower() not in KEYWORDS else f"`{name}`"


def _constant(constant: Scalar) -> str:
    if isinstance(constant, bool):
        return "true" if constant else "false"
    if isinstance(constant, str):
        return '"' + constant.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(constant)
