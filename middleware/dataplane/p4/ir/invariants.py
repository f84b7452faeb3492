"""The invariants of every program from the front end; tests check all loaded programs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from . import expressions as x
from . import statements as s
from .program import ACCEPT, REJECT, MatchKind, MatchMask, MatchSet, MatchValue, Program, Select, Table
from .types import (
    Bits,
    Bool,
    Enum,
    ErrorCode,
    HeaderType,
    StackType,
    StructType,
    TupleType,
    Type,
    UnionType,
    Void,
)
from .walk import bodies

_SAME = frozenset(
    {
        x.Operator.ADD,
        x.Operator.SUB,
        x.Operator.MUL,
        x.Operator.DIV,
        x.Operator.MOD,
        x.Operator.ADD_SAT,
        x.Operator.SUB_SAT,
        x.Operator.AND,
        x.Operator.OR,
        x.Operator.XOR,
    }
)
_PLACES = (x.Variable, x.Member, x.Element, x.TupleElement, x.Next, x.Last, x.Slice)


def check_invariants(program: Program) -> None:
    """Raises AssertionError with the place of a violation of `ir`'s contract."""
    checker = _Checker(program)
    for node in bodies(program):
        checker.node(node)
    for table in program.tables:
        checker.table(table)
    checker.parsers()
    checker.pipeline()


class _Checker:
    def __init__(self, program: Program) -> None:
        self.program = program

    def hold(self, condition: bool, node: object, message: str) -> None:
        assert condition, f"{getattr(node, 'span', '')}: {message}: {node}"

    def node(self, node: x.Expression | s.Statement) -> None:
        if isinstance(node, x.Expression):
            self.hold(_sized(node.type), node, "a type has no width")
        check = getattr(self, f"_{type(node).__name__}", None)
        if check is not None:
            check(node)

    # --- expressions

    def _Literal(self, node: x.Literal) -> None:
        value, type_ = node.value, node.type
        if isinstance(type_, Bits):
            low = -(1 << (type_.width - 1)) if type_.signed else 0
            high = (1 << (type_.width - 1 if type_.signed else type_.width)) - 1
            fits = type(value) is int and low <= value <= high
            self.hold(fits, node, "the value does not fit its type")
        elif isinstance(type_, Bool):
            self.hold(type(value) is bool, node, "a bool is wanted")
        elif isinstance(type_, Enum):
            fits = type(value) is int and 0 <= value < len(type_.members)
            self.hold(fits, node, "there is no such member")
        elif isinstance(type_, ErrorCode):
            fits = type(value) is int and 0 <= value < len(self.program.errors)
            self.hold(fits, node, "there is no such error")
        else:
            self.hold(type(value) is str, node, "no literal of this type")

    def _Variable(self, node: x.Variable) -> None:
        self.hold(self.program.variables[node.index].type == node.type, node, "the variable's type")

    def _Member(self, node: x.Member) -> None:
        base = node.base.type
        assert isinstance(base, StructType | HeaderType | UnionType), node
        field = base.fields[node.index]
        self.hold((field.name, field.type) == (node.name, node.type), node, "the field")

    def _Element(self, node: x.Element) -> None:
        base = node.base.type
        assert isinstance(base, StackType), node
        self.hold(base.element == node.type, node, "the element's type")
        self.hold(isinstance(node.index.type, Bits), node, "the index's type")

    def _TupleElement(self, node: x.TupleElement) -> None:
        base = node.base.type
        assert isinstance(base, TupleType), node
        self.hold(base.elements[node.index] == node.type, node, "the element's type")

    def _Slice(self, node: x.Slice) -> None:
        base = node.base.type
        assert isinstance(base, Bits), node
        self.hold(0 <= node.low <= node.high < base.width, node, "the slice is outside")
        self.hold(node.type == Bits(node.high - node.low + 1), node, "the slice's type")

    def _Unary(self, node: x.Unary) -> None:
        self.hold(node.operand.type == node.type, node, "the operand's type")

    def _Binary(self, node: x.Binary) -> None:
        left, right, result = node.left.type, node.right.type, node.type
        if node.operator in _SAME:
            self.hold(left == right == result and isinstance(left, Bits), node, "the operands' types")
        elif node.operator in (x.Operator.SHL, x.Operator.SHR):
            self.hold(left == result and isinstance(right, Bits), node, "the operands' types")
            self.hold(isinstance(right, Bits) and not right.signed, node, "a signed shift")
        elif node.operator is x.Operator.CONCAT:
            assert isinstance(left, Bits), node
            assert isinstance(right, Bits), node
            self.hold(result == Bits(left.width + right.width, left.signed), node, "the result's type")
        else:
            self.hold(left == right and result == Bool(), node, "the operands' types")

    def _Conditional(self, node: x.Conditional) -> None:
        self.hold(node.yes.type == node.no.type == node.type, node, "the branches' types")
        self.hold(node.condition.type == Bool(), node, "the condition's type")

    def _StructValue(self, node: x.StructValue) -> None:
        self._elements(node.elements, node.type, node)

    def _HeaderValue(self, node: x.HeaderValue) -> None:
        self.hold(isinstance(node.type, HeaderType), node, "no header")
        self._elements(node.elements, node.type, node)

    def _elements(self, elements: Sequence[x.Expression], type_: Type, node: object) -> None:
        assert isinstance(type_, StructType | HeaderType | TupleType), node
        if isinstance(type_, TupleType):
            wanted = list(type_.elements)
        else:
            wanted = [field.type for field in type_.fields]
        self.hold([one.type for one in elements] == wanted, node, "the elements' types")

    def _Call(self, node: x.Call) -> None:
        function = self.program.functions[node.function]
        self.hold(function.result == node.type, node, "the result's type")
        self._arguments(node.arguments, [one.type for one in function.parameters], node)

    def _ExternCall(self, node: x.ExternCall) -> None:
        self.hold(("." in node.name) == (node.instance is not None), node, "an object")
        if node.instance is not None:
            kind = self.program.externs[node.instance].kind
            self.hold(node.name.startswith(f"{kind}."), node, "the object's kind")
        self._arguments(node.arguments, [one.value.type for one in node.arguments], node)

    def _arguments(self, arguments: Sequence[x.Argument], wanted: list[Type], node: object) -> None:
        self.hold([one.value.type for one in arguments] == wanted, node, "the arguments' types")
        for one in arguments:
            out = one.direction in (x.Direction.OUT, x.Direction.INOUT)
            self.hold(not out or isinstance(one.value, _PLACES), node, "an out argument is no l-value")

    # --- statements

    def _Assign(self, node: s.Assign) -> None:
        self.hold(node.target.type == node.value.type, node, "the types of both sides")
        self.hold(isinstance(node.target, _PLACES), node, "the target is no l-value")

    def _Declare(self, node: s.Declare) -> None:
        type_ = self.program.variables[node.variable].type
        self.hold(node.value is None or node.value.type == type_, node, "the value's type")

    def _If(self, node: s.If) -> None:
        self.hold(node.condition.type == Bool(), node, "the condition's type")

    def _Switch(self, node: s.Switch) -> None:
        for case in node.cases:
            for label in case.labels:
                self.hold(label.type == node.subject.type, node, "a label's type")

    def _SwitchAction(self, node: s.SwitchAction) -> None:
        actions = len(self.program.tables[node.table].actions)
        fits = all(0 <= place < actions for case in node.cases for place in case.actions)
        self.hold(fits, node, "there is no such action")

    def _CallAction(self, node: s.CallAction) -> None:
        action = self.program.actions[node.action]
        self._arguments(node.arguments, [one.type for one in action.parameters], node)

    def _ApplyControl(self, node: s.ApplyControl) -> None:
        control = self.program.controls[node.control]
        self._arguments(node.arguments, [one.type for one in control.parameters], node)

    def _ApplyParser(self, node: s.ApplyParser) -> None:
        parser = self.program.parsers[node.parser]
        self._arguments(node.arguments, [one.type for one in parser.parameters], node)

    def _Extract(self, node: s.Extract) -> None:
        self.hold(isinstance(node.target.type, HeaderType), node, "no header")

    # --- the rest

    def table(self, table: Table) -> None:
        assert 0 <= table.default.action < len(table.actions), table.name
        for one in table.actions:
            bound = len(self.program.actions[one.action].parameters) - len(
                self.program.actions[one.action].data
            )
            assert len(one.arguments) == bound, table.name
        for entry in table.entries:
            assert len(entry.matches) == len(table.keys), table.name
            assert entry.priority > 0, table.name
            data = self.program.actions[table.actions[entry.action.action].action].data
            assert len(entry.action.values) == len(data), table.name
            for match, key in zip(entry.matches, table.keys, strict=True):
                exact = key.match_kind is MatchKind.EXACT
                assert not exact or isinstance(match, MatchValue), table.name
                if isinstance(match, MatchMask):
                    assert match.value & ~match.mask == 0, table.name

    def parsers(self) -> None:
        for parser in self.program.parsers:
            for state in parser.states:
                transition = state.transition
                targets = (
                    [case.target for case in transition.cases]
                    if isinstance(transition, Select)
                    else [transition.target]
                )
                known = range(len(parser.states))
                assert all(one in known or one in (ACCEPT, REJECT) for one in targets), state.name
                if isinstance(transition, Select):
                    for case in transition.cases:
                        alone = len(case.matches) == 1 and isinstance(case.matches[0], MatchSet)
                        assert alone or len(case.matches) == len(transition.keys), state.name

    def pipeline(self) -> None:
        pipeline, program = self.program.pipeline, self.program
        assert len(program.parsers[pipeline.parser].parameters) == 3
        counts = (pipeline.verify, 2), (pipeline.ingress, 3), (pipeline.egress, 3), (pipeline.compute, 2)
        for index, count in counts:
            assert len(program.controls[index].parameters) == count
        assert len(program.controls[pipeline.deparser].parameters) == 1


def _sized(type_: Type) -> bool:
    """Returns whether no number in it is without width."""
    match type_:
        case Bits(width=width):
            return width >= 0
        case TupleType(elements=elements):
            return all(map(_sized, elements))
        case StructType(fields=fields):
            return all(_sized(field.type) for field in fields)
        case Void():
            return True
    return True
