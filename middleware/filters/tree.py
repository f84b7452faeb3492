"""A filter as values: the abstract syntax of Camus, Fig. 1.

  c ::= c1 and c2 | c1 or c2 | not c | e        filter: a logical expression
  e ::= a relation constant                     constraint
  a ::= h.f | v | g(v0 ... vn)                  header field, state variable, state aggregation function

A constraint holds only if its attribute is present and comparable with the constant: a number with a number,
a string with a string. So `price > 5` and `price <= 5` are both false if there is no price, and `not price >
5` is true. For this reason negation is not part of a constraint and is never pushed into one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from msgspec import Struct

Scalar = int | float | str | bool
"""The comparable form of an attribute's value. A boolean equals only booleans."""


class Relation(enum.Enum):
    """The comparison of an attribute with a constant; the value is its spelling."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    PREFIX = "prefix"


class Field(Struct, frozen=True, tag=True):
    """An attribute of the message (`h.f` or deeper) or the name of a state variable. `path` is never
    empty.
    """

    path: tuple[str, ...]


class Aggregate(Struct, frozen=True, tag=True):
    """A state aggregation function over attributes: `avg(price)`."""

    function: str
    arguments: tuple[Field, ...]


Attribute = Field | Aggregate


class Constraint(Struct, frozen=True, tag=True):
    """A comparison of one attribute with one constant. PREFIX takes a string."""

    attribute: Attribute
    relation: Relation
    constant: Scalar


class Not(Struct, frozen=True, tag=True):
    """True if `part` is false."""

    part: Filter


class And(Struct, frozen=True, tag=True):
    """True if all `parts` are true. Without parts: true."""

    parts: tuple[Filter, ...]


class Or(Struct, frozen=True, tag=True):
    """True if one of `parts` is true. Without parts: false."""

    parts: tuple[Filter, ...]


Filter = Constraint | Not | And | Or

EVERYTHING = And(())
NOTHING = Or(())


def constraints(tree: Filter) -> Iterator[Constraint]:
    """Yields all constraints from left to right, including repeated ones."""
    match tree:
        case Constraint():
            yield tree
        case Not(part):
            yield from constraints(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from constraints(part)


def fields(tree: Filter) -> tuple[Field, ...]:
    """Returns the fields that the filter reads, each once, in order of appearance."""
    found: dict[Field, None] = {}
    for constraint in constraints(tree):
        attribute = constraint.attribute
        for field in (attribute,) if isinstance(attribute, Field) else attribute.arguments:
            found[field] = None
    return tuple(found)


def aggregates(tree: Filter) -> tuple[Aggregate, ...]:
    """Returns the aggregations that the filter reads, each once. A filter without any is stateless."""
    found: dict[Aggregate, None] = {}
    for constraint in constraints(tree):
        if isinstance(constraint.attribute, Aggregate):
            found[constraint.attribute] = None
    return tuple(found)
