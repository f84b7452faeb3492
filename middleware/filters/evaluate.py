"""Evaluation of a stateless filter on a message.

`evaluate` walks the tree and is the reference. `compile_filter` turns the tree into a Python expression, for
batches of thousands of messages. Both follow the rules of `tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .text import to_text
from .tree import Aggregate, And, Constraint, Field, Filter, Not, Or, Relation, Scalar, aggregates, fields

Reader = Callable[[Field], Scalar | None]
"""Reads a field's value from the current message; None if there is no comparable value."""

Test = Callable[[Sequence[Scalar | None]], bool]
"""Takes the values of `fields(tree)`, in that order."""


class StatefulFilterError(ValueError):
    """The filter reads state that only a switch or a later stage keeps."""

    def __init__(self, aggregate: Aggregate) -> None:
        written = f"{aggregate.function}({', '.join('.'.join(field.path) for field in aggregate.arguments)})"
        super().__init__(f"{written} needs state; filters are evaluated without state here")


def check_stateless(tree: Filter) -> None:
    """Raises StatefulFilterError if the filter aggregates."""
    for aggregate in aggregates(tree):
        raise StatefulFilterError(aggregate)


def evaluate(tree: Filter, read: Reader) -> bool:
    """Returns whether the message that `read` reads passes. Raises StatefulFilterError if the filter
    aggregates.
    """
    match tree:
        case Constraint(Field() as field, relation, constant):
            value = read(field)
            return value is not None and holds(value, relation, constant)
        case Constraint(Aggregate() as aggregate):
            raise StatefulFilterError(aggregate)
        case Not(part):
            return not evaluate(part, read)
        case And(parts):
            return all(evaluate(part, read) for part in parts)
        case Or(parts):
            return any(evaluate(part, read) for part in parts)
    raise AssertionError(f"no filter: {tree!r}")


def holds(value: Scalar, relation: Relation, constant: Scalar) -> bool:
    """Returns whether `value` stands in the relation to the constant; false if they are not comparable."""
    if isinstance(value, bool) or isinstance(constant, bool):
        if not (isinstance(value, bool) and isinstance(constant, bool)):
            return False
        return (value == constant) is (relation is Relation.EQ)
    if isinstance(value, str) and isinstance(constant, str):
        if relation is Relation.PREFIX:
            return value.startswith(constant)
        return _ordered(value > constant, value < constant, relation)
    if isinstance(value, str) or isinstance(constant, str):
        return False
    return _ordered(value > constant, value < constant, relation)


def _ordered(above: bool, below: bool, relation: Relation) -> bool:
    match relation:
        case Relation.EQ:
            return not above and not below
        case Relation.NE:
            return above or below
        case Relation.LT:
            return below
        case Relation.LE:
            return not above
        case Relation.GT:
            return above
        case Relation.GE:
            return not below
    return False


# --- the fast path


def compile_filter(tree: Filter) -> Test:
    """Returns a compiled form of `evaluate`. The filter's constants enter the source by name only."""
    check_stateless(tree)
    writer = _Writer(tree)
    source = f"lambda v: {writer.expression(tree)}"
    names: dict[str, object] = {
        "__builtins__": {},
        "_int": int,
        "_float": float,
        "_str": str,
        **writer.constants,
    }
    code = compile(source, f"<filter {to_text(tree)[:60]}>", "eval")
    test: Test = eval(code, names)  # nosec B307  # written here from a checked tree, without builtins
    return test


class _Writer:
    """The source of one filter, and the constants that it names."""

    def __init__(self, tree: Filter) -> None:
        self._places = {field: place for place, field in enumerate(fields(tree))}
        self.constants: dict[str, Scalar] = {}

    def expression(self, tree: Filter) -> str:
        match tree:
            case Constraint(Field() as field, relation, constant):
                return self._constraint(f"v[{self._places[field]}]", relation, constant)
            case Not(part):
                return f"(not {self.expression(part)})"
            case And(parts):
                return f"({' and '.join(map(self.expression, parts))})" if parts else "True"
            case Or(parts):
                return f"({' or '.join(map(self.expression, parts))})" if parts else "False"
        raise AssertionError(f"no stateless filter: {tree!r}")

    def _constraint(self, value: str, relation: Relation, constant: Scalar) -> str:
        if isinstance(constant, bool):
            return f"({value} is {constant is (relation is Relation.EQ)})"
        name = f"c{len(self.constants)}"
        self.constants[name] = constant
        if isinstance(constant, str):
            compared = (
                f"{value}.startswith({name})"
                if relation is Relation.PREFIX
                else f"{value} {relation.value} {name}"
            )
            return f"({value}.__class__ is _str and {compared})"
        kind = f"({value}.__class__ is _int or {value}.__class__ is _float)"
        return f"({kind} and {value} {relation.value} {name})"
