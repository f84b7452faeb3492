"""Statements. Pure.

There are no scopes: every variable has its own place in `Program.variables`. As P4 has no recursion, one
place per variable and packet is enough. Callees' parameters are variables too: a call evaluates all arguments
first, then writes the parameters (`Direction.OUT` ones get the default value of their type), runs the body,
then copies out.
"""

from __future__ import annotations

import msgspec

from ..source import Span
from .expressions import Argument, Call, Expression, ExternCall, Literal, TableApply


class Declare(msgspec.Struct, frozen=True):
    """A variable's scope is entered: it gets `value`, or its type's default value."""

    variable: int
    value: Expression | None
    span: Span


class Assign(msgspec.Struct, frozen=True):
    """`target = value`; of one type. Headers, stacks, unions and structs are copied, validity too.

    The l-value's indices are evaluated before the value.
    """

    target: Expression
    value: Expression
    span: Span


class SetValid(msgspec.Struct, frozen=True):
    """`header.setValid()`; of a union's member the other members become invalid."""

    header: Expression
    span: Span


class SetInvalid(msgspec.Struct, frozen=True):
    """`header.setInvalid()`."""

    header: Expression
    span: Span


class PushFront(msgspec.Struct, frozen=True):
    """`stack.push_front(count)`: element i moves to i + count, the first `count` become invalid, nextIndex
    grows, at most to size."""

    stack: Expression
    count: int
    span: Span


class PopFront(msgspec.Struct, frozen=True):
    """`stack.pop_front(count)`: element i moves to i - count, the last `count` become invalid, nextIndex
    falls, at least to 0."""

    stack: Expression
    count: int
    span: Span


class If(msgspec.Struct, frozen=True):
    """`if (condition) yes else no`."""

    condition: Expression
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...]
    span: Span


class SwitchCase(msgspec.Struct, frozen=True):
    """Runs `body` if the subject equals one of `labels`. Labels that fall through are merged with the next
    case.
    """

    labels: tuple[Literal, ...]
    body: tuple[Statement, ...]
    span: Span


class Switch(msgspec.Struct, frozen=True):
    """`switch (subject)`: the one case that fits, else `default`."""

    subject: Expression
    cases: tuple[SwitchCase, ...]
    default: tuple[Statement, ...]
    span: Span


class ActionCase(msgspec.Struct, frozen=True):
    """Runs `body` if the action that ran is one of `actions`, indices into the table's `actions`."""

    actions: tuple[int, ...]
    body: tuple[Statement, ...]
    span: Span


class SwitchAction(msgspec.Struct, frozen=True):
    """`switch (table.apply().action_run)`: applies the table, then runs the case of the action that ran."""

    table: int
    cases: tuple[ActionCase, ...]
    default: tuple[Statement, ...]
    span: Span


class Evaluate(msgspec.Struct, frozen=True):
    """A call for its effect; its value is dropped."""

    call: Call | ExternCall | TableApply
    span: Span


class CallAction(msgspec.Struct, frozen=True):
    """A direct call of an action (index into `Program.actions`), all its parameters given, in their order."""

    action: int
    arguments: tuple[Argument, ...]
    span: Span


class ApplyControl(msgspec.Struct, frozen=True):
    """`c.apply(...)`: runs an instance (index into `Program.controls`). Its return ends only it, its exit
    everything.

    Arguments are for `Control.parameters`, without packet_in and packet_out, of which there is only one each.
    """

    control: int
    arguments: tuple[Argument, ...]
    span: Span


class ApplyParser(msgspec.Struct, frozen=True):
    """`p.apply(...)` in a parser state: continues if the subparser (index into `Program.parsers`) accepts,
    else rejects.
    """

    parser: int
    arguments: tuple[Argument, ...]
    span: Span


class Extract(msgspec.Struct, frozen=True):
    """`packet.extract(target)`, `packet.extract(target, varbit_bits)`: a header from the packet's next bits.

    error.PacketTooShort leaves packet and target unchanged. With `varbit_bits` (32 bits) the header's varbit
    field gets that many bits: error.HeaderTooShort if they exceed it, error.ParserInvalidArgument if not a
    multiple of 8. A target in a header union makes its other members invalid.
    """

    target: Expression
    varbit_bits: Expression | None
    span: Span


class Skip(msgspec.Struct, frozen=True):
    """Skips the packet's next bits: `packet.advance(bits)`, and `extract<T>(_)` with T's width. 32 bits."""

    bits: Expression
    span: Span


class Verify(msgspec.Struct, frozen=True):
    """`verify(condition, error)`: if False the parser stops with that error (type ErrorCode) and rejects."""

    condition: Expression
    error: Expression
    span: Span


class Emit(msgspec.Struct, frozen=True):
    """`packet.emit(value)`: appends a valid header; of a struct, stack, union or tuple every header in
    order."""

    value: Expression
    span: Span


class For(msgspec.Struct, frozen=True):
    """`for (init; condition; update) body`; `init` precedes it as separate statements. Continue jumps to
    `update`.
    """

    condition: Expression
    update: tuple[Statement, ...]
    body: tuple[Statement, ...]
    span: Span


class ForRange(msgspec.Struct, frozen=True):
    """`for (T v in low .. high)`: both inclusive, evaluated once; none if low > high."""

    variable: int
    low: Expression
    high: Expression
    body: tuple[Statement, ...]
    span: Span


class ForEach(msgspec.Struct, frozen=True):
    """`for (T v in {a, b, c})`, or over the elements of a stack: once per item, the items evaluated once."""

    variable: int
    items: tuple[Expression, ...]
    body: tuple[Statement, ...]
    span: Span


class Break(msgspec.Struct, frozen=True):
    """Leaves the innermost loop."""

    span: Span


class Continue(msgspec.Struct, frozen=True):
    """Goes to the innermost loop's next round."""

    span: Span


class Return(msgspec.Struct, frozen=True):
    """Ends the action, function, or control."""

    value: Expression | None
    span: Span


class Exit(msgspec.Struct, frozen=True):
    """Ends the pipeline's block (ingress, egress, ...) at once; results of all calls on the way are copied
    out."""

    span: Span


Statement = (
    Declare
    | Assign
    | SetValid
    | SetInvalid
    | PushFront
    | PopFront
    | If
    | Switch
    | SwitchAction
    | Evaluate
    | CallAction
    | ApplyControl
    | ApplyParser
    | Extract
    | Skip
    | Verify
    | Emit
    | For
    | ForRange
    | ForEach
    | Break
    | Continue
    | Return
    | Exit
)
