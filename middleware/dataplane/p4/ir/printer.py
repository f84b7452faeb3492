"""Prints a program for people: `treecast p4 check --dump`. Pure.

Expressions are in P4's syntax, with every cast, and variables are `name#index`, so that the result of the
front end can be compared with the source. The output is not P4 and cannot be parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import expressions as x
from . import statements as s
from .program import (
    ACCEPT,
    REJECT,
    Action,
    ActionData,
    Control,
    Function,
    Match,
    MatchAny,
    MatchMask,
    MatchRange,
    MatchSet,
    MatchValue,
    Parameter,
    Parser,
    Program,
    Select,
    State,
    Table,
)
from .types import (
    Bits,
    Bool,
    Enum,
    ErrorCode,
    HeaderType,
    StackType,
    String,
    StructType,
    TupleType,
    Type,
    UnionType,
    Varbit,
    Void,
)

_KINDS = {StructType: "struct", HeaderType: "header", UnionType: "header_union"}


def show(program: Program) -> str:
    """Returns the whole program, one part after the other."""
    return "\n".join(_Printer(program).lines()) + "\n"


def show_type(type_: Type) -> str:
    """Returns a type as P4 writes it."""
    match type_:
        case Bits(width=width, signed=signed):
            return f"{'int' if signed else 'bit'}<{width}>"
        case Varbit(width=width):
            return f"varbit<{width}>"
        case StackType(element=element, size=size):
            return f"{element.name}[{size}]"
        case TupleType(elements=elements):
            return f"tuple<{', '.join(map(show_type, elements))}>"
        case StructType(name=name) | HeaderType(name=name) | UnionType(name=name) | Enum(name=name):
            return name
        case Bool():
            return "bool"
        case ErrorCode():
            return "error"
        case String():
            return "string"
        case Void():
            return "void"


class _Printer:
    def __init__(self, program: Program) -> None:
        self.program = program

    def lines(self) -> Iterable[str]:
        program = self.program
        records: tuple[StructType | HeaderType | UnionType, ...] = program.headers
        for record in (*records, *program.unions, *program.structs):
            yield f"{_KINDS[type(record)]} {record.name} {{"
            yield from (f"    {show_type(one.type)} {one.name};" for one in record.fields)
            yield "}"
        for one in program.externs:
            types = ", ".join(map(show_type, one.type_arguments))
            arguments = ", ".join(f"{name} = {value}" for name, value in one.arguments)
            yield f"{one.kind}{f'<{types}>' if types else ''}({arguments}) {one.name};"
        for values in program.value_sets:
            fields = ", ".join(f"{show_type(one.type)} {one.match_kind.value}" for one in values.fields)
            yield f"value_set<{fields}>({values.size}) {values.name};"
        for function in program.functions:
            yield from self.function(function)
        for action in program.actions:
            yield from self.action(action)
        for table in program.tables:
            yield from self.table(table)
        for parser in program.parsers:
            yield from self.parser(parser)
        for control in program.controls:
            yield from self.control(control)
        yield self.pipeline()

    def pipeline(self) -> str:
        pipeline, controls = self.program.pipeline, self.program.controls
        indices = (pipeline.verify, pipeline.ingress, pipeline.egress, pipeline.compute, pipeline.deparser)
        names = [self.program.parsers[pipeline.parser].name, *(controls[one].name for one in indices)]
        return f"V1Switch({', '.join(names)}) main;"

    # --- parts

    def parameters(self, parameters: Sequence[Parameter]) -> str:
        shown = (
            f"{one.direction.value} {show_type(one.type)} {self.variable(one.variable)}".strip()
            for one in parameters
        )
        return f"({', '.join(shown)})"

    def function(self, one: Function) -> Iterable[str]:
        return self._braced(show_type(one.result), one)

    def action(self, one: Action) -> Iterable[str]:
        return self._braced("action", one)

    def control(self, one: Control) -> Iterable[str]:
        return self._braced("control", one)

    def _braced(self, what: str, one: Function | Action | Control) -> Iterable[str]:
        yield f"{what} {one.name}{self.parameters(one.parameters)} {{"
        yield from self.block(one.body, 1)
        yield "}"

    def parser(self, one: Parser) -> Iterable[str]:
        yield f"parser {one.name}{self.parameters(one.parameters)} {{"
        yield from self.block(one.setup, 1)
        for state in one.states:
            yield from self.state(state, one)
        yield "}"

    def state(self, state: State, parser: Parser) -> Iterable[str]:
        yield f"    state {state.name} {{"
        yield from self.block(state.body, 2)
        transition = state.transition
        if isinstance(transition, Select):
            keys = ", ".join(map(self.expression, transition.keys))
            yield f"        transition select({keys}) {{"
            for case in transition.cases:
                matches = ", ".join(map(self.match, case.matches))
                yield f"            ({matches}): {self.target(case.target, parser)};"
            yield "        }"
        else:
            yield f"        transition {self.target(transition.target, parser)};"
        yield "    }"

    def target(self, target: int, parser: Parser) -> str:
        return {ACCEPT: "accept", REJECT: "reject"}.get(target) or parser.states[target].name

    def match(self, match: Match) -> str:
        match match:
            case MatchAny():
                return "_"
            case MatchValue(value=value):
                return _number(value)
            case MatchMask(value=value, mask=mask):
                return f"{value:#x} &&& {mask:#x}"
            case MatchRange(low=low, high=high):
                return f"{low} .. {high}"
            case MatchSet(value_set=index):
                return self.program.value_sets[index].name

    def table(self, table: Table) -> Iterable[str]:
        yield f"table {table.name} {{"
        for key in table.keys:
            yield f'    key {self.expression(key.expression)} : {key.match_kind.value} @name("{key.name}");'
        for one in table.actions:
            marks = "".join(f" @{mark.name}" for mark in one.annotations)
            bound = ", ".join(map(self.expression, one.arguments))
            yield f"    action {self.program.actions[one.action].name}({bound}){marks};"
        for entry in table.entries:
            matches = ", ".join(map(self.match, entry.matches))
            yield f"    entry {entry.priority}: ({matches}) : {self.data(entry.action, table)};"
        constant = "const " if table.default_constant else ""
        yield f"    {constant}default {self.data(table.default, table)};"
        if table.size is not None:
            yield f"    size {table.size};"
        for noun, index in (
            ("implementation", table.implementation),
            ("counters", table.counters),
            ("meters", table.meters),
        ):
            if index is not None:
                yield f"    {noun} {self.program.externs[index].name};"
        yield "}"

    def data(self, data: ActionData, table: Table) -> str:
        name = self.program.actions[table.actions[data.action].action].name
        return f"{name}({', '.join(map(_number, data.values))})"

    def variable(self, index: int) -> str:
        return f"{self.program.variables[index].name}#{index}"

    # --- statements

    def block(self, body: Sequence[s.Statement], depth: int) -> Iterable[str]:
        for one in body:
            for line in self.statement(one):
                yield "    " * depth + line

    def statement(self, node: s.Statement) -> Iterable[str]:
        match node:
            case s.If(condition=condition, yes=yes, no=no):
                yield f"if ({self.expression(condition)}) {{"
                yield from self.block(yes, 1)
                if no:
                    yield "} else {"
                    yield from self.block(no, 1)
                yield "}"
            case s.Switch(subject=subject, cases=cases, default=default):
                yield f"switch ({self.expression(subject)}) {{"
                for case in cases:
                    labels = ", ".join(map(self.expression, case.labels))
                    yield from self.case(labels, case.body)
                yield from self.case("default", default)
                yield "}"
            case s.SwitchAction(table=table, cases=actions, default=default):
                yield f"switch ({self.program.tables[table].name}.apply().action_run) {{"
                for choice in actions:
                    yield from self.case(self.action_names(table, choice.actions), choice.body)
                yield from self.case("default", default)
                yield "}"
            case s.For(condition=condition, update=update, body=body):
                yield f"for (; {self.expression(condition)};) {{"
                yield from self.block(body, 1)
                yield "} update {"
                yield from self.block(update, 1)
                yield "}"
            case s.ForRange(variable=variable, low=low, high=high, body=body):
                ends = f"{self.expression(low)} .. {self.expression(high)}"
                yield f"for ({self.variable(variable)} in {ends}) {{"
                yield from self.block(body, 1)
                yield "}"
            case s.ForEach(variable=variable, items=items, body=body):
                shown = ", ".join(map(self.expression, items))
                yield f"for ({self.variable(variable)} in {{{shown}}}) {{"
                yield from self.block(body, 1)
                yield "}"
            case _:
                yield f"{self.simple(node)};"

    def case(self, labels: str, body: Sequence[s.Statement]) -> Iterable[str]:
        yield f"    {labels}: {{"
        yield from self.block(body, 2)
        yield "    }"

    def action_names(self, table: int, places: Sequence[int]) -> str:
        actions = self.program.tables[table].actions
        return ", ".join(self.program.actions[actions[one].action].name for one in places)

    def simple(self, node: s.Statement) -> str:
        """Returns a statement of one line."""
        program, show = self.program, self.expression
        match node:
            case s.Declare(variable=variable, value=value):
                declared = f"{show_type(program.variables[variable].type)} {self.variable(variable)}"
                return declared if value is None else f"{declared} = {show(value)}"
            case s.Assign(target=target, value=value):
                return f"{show(target)} = {show(value)}"
            case s.SetValid(header=header):
                return f"{show(header)}.setValid()"
            case s.SetInvalid(header=header):
                return f"{show(header)}.setInvalid()"
            case s.PushFront(stack=stack, count=count):
                return f"{show(stack)}.push_front({count})"
            case s.PopFront(stack=stack, count=count):
                return f"{show(stack)}.pop_front({count})"
            case s.Evaluate(call=call):
                return show(call)
            case s.CallAction(action=action, arguments=arguments):
                return f"{program.actions[action].name}({self.arguments(arguments)})"
            case s.ApplyControl(control=control, arguments=arguments):
                return f"{program.controls[control].name}.apply({self.arguments(arguments)})"
            case s.ApplyParser(parser=parser, arguments=arguments):
                return f"{program.parsers[parser].name}.apply({self.arguments(arguments)})"
            case s.Extract(target=target, varbit_bits=None):
                return f"extract({show(target)})"
            case s.Extract(target=target, varbit_bits=bits) if bits is not None:
                return f"extract({show(target)}, {show(bits)})"
            case s.Skip(bits=bits):
                return f"advance({show(bits)})"
            case s.Verify(condition=condition, error=error):
                return f"verify({show(condition)}, {show(error)})"
            case s.Emit(value=value):
                return f"emit({show(value)})"
            case s.Return(value=value):
                return "return" if value is None else f"return {show(value)}"
        return type(node).__name__.lower()

    # --- expressions

    def arguments(self, arguments: Sequence[x.Argument]) -> str:
        return ", ".join(f"{one.direction.value} {self.expression(one.value)}".strip() for one in arguments)

    def expression(self, node: x.Expression) -> str:
        show = self.expression
        match node:
            case x.Literal():
                return self.literal(node)
            case x.Variable(index=index):
                return self.variable(index)
            case x.Member(base=base, name=name):
                return f"{show(base)}.{name}"
            case x.Element(base=base, index=place):
                return f"{show(base)}[{show(place)}]"
            case x.TupleElement(base=base, index=number):
                return f"{show(base)}[{number}]"
            case x.Next(base=base):
                return f"{show(base)}.next"
            case x.Last(base=base):
                return f"{show(base)}.last"
            case x.LastIndex(base=base):
                return f"{show(base)}.lastIndex"
            case x.Slice(base=base, high=high, low=low):
                return f"{show(base)}[{high}:{low}]"
            case x.Unary(operator=sign, operand=operand):
                return f"{sign.value}{show(operand)}"
            case x.Binary(operator=operator, left=left, right=right):
                return f"({show(left)} {operator.value} {show(right)})"
            case x.Conditional(condition=condition, yes=yes, no=no):
                return f"({show(condition)} ? {show(yes)} : {show(no)})"
            case x.Cast(operand=operand, type=type_):
                return f"({show_type(type_)}) {show(operand)}"
            case x.StructValue(elements=elements) | x.HeaderValue(elements=elements):
                return f"{{{', '.join(map(show, elements))}}}"
            case x.StackValue(elements=elements):
                return f"{{{', '.join(map(show, elements))}}}"
            case x.Default():
                return "..."
            case x.IsValid(base=base):
                return f"{show(base)}.isValid()"
            case x.TableApply(table=table):
                return f"{self.program.tables[table].name}.apply().hit"
            case x.Call(function=function, arguments=arguments):
                return f"{self.program.functions[function].name}({self.arguments(arguments)})"
            case x.ExternCall():
                return self.extern_call(node)
            case x.Lookahead(type=type_):
                return f"lookahead<{show_type(type_)}>()"
            case x.PacketLength():
                return "length()"

    def extern_call(self, node: x.ExternCall) -> str:
        name = node.name
        if node.instance is not None:
            name = f"{self.program.externs[node.instance].name}.{name.partition('.')[2]}"
        types = ", ".join(map(show_type, node.type_arguments))
        return f"{name}{f'<{types}>' if types else ''}({self.arguments(node.arguments)})"

    def literal(self, node: x.Literal) -> str:
        value, type_ = node.value, node.type
        match type_:
            case Bits(width=width, signed=signed):
                return f"{width}{'s' if signed else 'w'}{value}"
            case ErrorCode():
                return f"error.{self.program.errors[int(value)]}"
            case Enum(name=name, members=members):
                return f"{name}.{members[int(value)]}"
            case String():
                return f'"{value}"'
        return _number(value)


def _number(value: int | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
