"""Statements. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .. import ast, ir, types
from ..ir.walk import walk
from ..source import Span
from .base import Place, Refused
from .calls import Calls
from .conversions import Conversions, same
from .expressions import Expressions
from .operators import Operators
from .scope import ConstantEntity, TableEntity, Typed, VariableEntity
from .type_refs import TypeRefs


class Statements:
    """The part of the checker that lowers statements."""

    def __init__(
        self,
        at: Place,
        type_refs: TypeRefs,
        conversions: Conversions,
        operators: Operators,
        expressions: Expressions,
        calls: Calls,
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._conversions = conversions
        self._operators = operators
        self._expressions = expressions
        self._calls = calls
        at.statements = self
        self._handlers: dict[type, Callable[[Any], None]] = {
            ast.Assign: self._assign,
            ast.CallStatement: self._call_statement,
            ast.If: self._if,
            ast.Block: self._block,
            ast.Empty: self._empty,
            ast.Return: self._return,
            ast.Exit: self._exit,
            ast.Break: self._break,
            ast.Continue: self._continue,
            ast.Switch: self._switch,
            ast.For: self._for,
            ast.ForIn: self._for_in,
            ast.VariableDeclaration: self.variable,
            ast.ConstantDeclaration: self.constant,
            ast.Instantiation: self._no_instance,
        }

    def statements(self, block: ast.Block) -> tuple[ir.Statement, ...]:
        """Returns the statements of a block, checked in its own scope."""
        with self._at.collecting() as output, self._at.inner():
            for one in block.statements:
                self.statement(one)
        return tuple(output)

    def statement(self, node: ast.Statement) -> None:
        """Lowers one statement into the present output; records its error and continues."""
        try:
            self._handlers[type(node)](node)
        except Refused as refused:
            self._at.report(refused)
            if isinstance(node, ast.VariableDeclaration | ast.ConstantDeclaration | ast.Instantiation):
                self._at.poison(node.name, node.span)

    def _alone(self, node: ast.Statement) -> tuple[ir.Statement, ...]:
        """Returns a branch: a statement in a scope of its own."""
        if isinstance(node, ast.Block):
            return self.statements(node)
        with self._at.collecting() as output, self._at.inner():
            self.statement(node)
        return tuple(output)

    # --- declarations

    def variable(self, node: ast.VariableDeclaration) -> None:
        """Checks a local variable."""
        type_ = self._type_refs.type_of(node.type)
        self._no_variable_of(type_, node.span)
        if isinstance(type_, types.ExternType | types.Applicable | types.PackageType):
            self._at.fail(
                node.span, f"{types.describe(type_)} needs constructor arguments: {node.name} is no variable"
            )
        self._at.represent(type_, node.span)
        value = None
        if node.value is not None:
            try:
                value = self._expressions.value(node.value, type_).node
            except Refused as refused:
                self._at.report(refused)
        index = self._at.new_variable(node.name, type_, node.span)
        self._at.emit(ir.Declare(index, value, node.span))
        self._at.declare(node.name, VariableEntity(index, type_, True, node.span), node.span)

    def _no_variable_of(self, type_: types.Type, span: Span) -> None:
        if isinstance(type_, types.Infinite | ir.String | ir.Void | types.ListType):
            self._at.fail(span, f"a variable can't be of type {types.describe(type_)}")

    def constant(self, node: ast.ConstantDeclaration) -> None:
        """Checks `const type name = value;`."""
        type_ = self._type_refs.type_of(node.type)
        typed = self.constant_value(node.value, type_)
        self._at.declare(node.name, ConstantEntity(typed, node.span, self._at.order), node.span)

    def constant_value(self, node: ast.Expression, type_: types.Type) -> Typed:
        """Returns a value that is known at load."""
        if isinstance(type_, types.ListType):
            typed = self._expressions.list_value(node, type_)
        else:
            typed = self._expressions.value(node, type_)
        if not is_constant(typed.node):
            self._at.fail(node.span, "this value must be known when the program is loaded")
        return typed

    def _no_instance(self, node: ast.Instantiation) -> None:
        self._type_refs.type_of(node.type)
        self._at.fail(node.span, f"'{node.name}' can't be instantiated here; declare it beside the block")

    # --- assignment and calls

    def _assign(self, node: ast.Assign) -> None:
        target = self._expressions.lvalue(node.target)
        if node.operator:
            target = Typed(target.type, self._evaluated_once(target.node), True, True)
            operand = self._expressions.expression(node.value, target.type)
            found = self._operators.operated(node.operator, target, operand, node.span)
            value = self._conversions.convert(found, target.type, node.value.span)
        else:
            value = self._expressions.value(node.value, target.type)
        self._at.emit(ir.Assign(target.node, value.node, node.span))

    def _evaluated_once(self, node: ir.Expression) -> ir.Expression:
        """Returns an l-value that is read and written: its indices go into variables if they call
        something.
        """
        if isinstance(node, ir.Element):
            base, index = self._evaluated_once(node.base), node.index
            if any(isinstance(one, ir.Call | ir.ExternCall | ir.TableApply) for one in walk(index)):
                assert isinstance(index.type, ir.Bits)
                variable = self._at.new_variable("index", index.type, index.span)
                self._at.emit(ir.Declare(variable, index, index.span))
                index = ir.Variable(variable, index.type, index.span)
            return ir.Element(base, index, node.type, node.span)
        if isinstance(node, ir.Member | ir.Slice | ir.TupleElement | ir.Next | ir.Last):
            return msgspec.structs.replace(node, base=self._evaluated_once(node.base))
        return node

    def _call_statement(self, node: ast.CallStatement) -> None:
        typed = self._calls.call(node.call, None)
        if isinstance(typed.node, ir.Call | ir.ExternCall | ir.TableApply):
            self._at.emit(ir.Evaluate(typed.node, node.span))
        elif isinstance(typed.node, ir.Lookahead):
            variable = self._at.new_variable("_", typed.type, node.span)
            self._at.emit(ir.Declare(variable, typed.node, node.span))

    # --- control flow

    def _block(self, node: ast.Block) -> None:
        self._at.frame.output.extend(self.statements(node))

    def _empty(self, node: ast.Empty) -> None:
        pass

    def _if(self, node: ast.If) -> None:
        try:
            condition = self._expressions.boolean(node.condition).node
        except Refused as refused:
            self._at.report(refused)
            condition = ir.Literal(True, types.BOOL, node.span)
        yes = self._alone(node.yes)
        no = self._alone(node.no) if node.no is not None else ()
        self._at.emit(ir.If(condition, yes, no, node.span))

    def _return(self, node: ast.Return) -> None:
        kind, result = self._at.frame.kind, self._at.frame.result
        if kind == "parser":
            self._at.fail(node.span, "there is no 'return' in parsers")
        if result is None or isinstance(result, ir.Void):
            if node.value is not None:
                self._at.fail(node.value.span, f"nothing can be returned from this {kind}")
            self._at.emit(ir.Return(None, node.span))
            return
        if node.value is None:
            self._at.fail(node.span, f"a value of type {types.describe(result)} must be returned")
        self._at.emit(ir.Return(self._expressions.value(node.value, result).node, node.span))

    def _exit(self, node: ast.Exit) -> None:
        if self._at.frame.kind in ("parser", "function"):
            self._at.fail(node.span, f"there is no 'exit' in {self._at.frame.kind}s")
        self._at.emit(ir.Exit(node.span))

    def _switch(self, node: ast.Switch) -> None:
        if self._at.frame.kind == "parser":
            self._at.fail(node.span, "there is no 'switch' in parsers")
        subject = node.subject
        if isinstance(subject, ast.Member) and subject.name == "action_run":
            self._switch_action(node, subject.base)
            return
        typed = self._expressions.expression(subject)
        base = types.underlying(typed.type)
        if not isinstance(base, ir.Bits | ir.Bool | types.EnumType | ir.ErrorCode | types.Infinite):
            self._at.fail(subject.span, f"a switch can't be about {types.describe(typed.type)}")
        cases: list[ir.SwitchCase] = []
        default: tuple[ir.Statement, ...] = ()
        seen: set[int | bool | str] = set()
        for group, has_default, body in self._groups(node):
            labels = tuple(self._label(one.label, typed.type, seen) for one in group)
            if has_default:
                default = body
            if labels:
                cases.append(ir.SwitchCase(labels, body, group[0].span))
        self._at.emit(ir.Switch(typed.node, tuple(cases), default, node.span))

    def _groups(self, node: ast.Switch) -> list[tuple[list[ast.SwitchCase], bool, tuple[ir.Statement, ...]]]:
        """Cases that share a body: their labels, whether default is among them, the body."""
        found = []
        labels: list[ast.SwitchCase] = []
        has_default = seen_default = False
        for one in node.cases:
            if isinstance(one.label, ast.DontCare):
                if seen_default:
                    self._at.complain(one.span, "the switch has two defaults")
                has_default = seen_default = True
            else:
                if seen_default:
                    self._at.complain(one.span, "no case can follow 'default'")
                labels.append(one)
            if one.body is not None:
                found.append((labels, has_default, self.statements(one.body)))
                labels, has_default = [], False
        if labels or has_default:
            found.append((labels, has_default, ()))
        return found

    def _label(self, node: ast.Expression, wanted: types.Type, seen: set[int | bool | str]) -> ir.Literal:
        literal = self._expressions.value(node, wanted).node
        if not isinstance(literal, ir.Literal):
            self._at.fail(node.span, "the label of a case must be known when the program is loaded")
        if literal.value in seen:
            self._at.fail(node.span, "there are two cases with this label")
        seen.add(literal.value)
        return literal

    def _switch_action(self, node: ast.Switch, call: ast.Expression) -> None:
        applied = self._calls.call(call, None) if isinstance(call, ast.Call) else None
        if applied is None or not isinstance(applied.node, ir.TableApply):
            self._at.fail(call.span, "'action_run' is a result of applying tables only")
        assert isinstance(call, ast.Call)
        assert isinstance(call.target, ast.Member)
        assert isinstance(call.target.base, ast.Name)
        table = self._at.lookup(call.target.base.name, call.target.base.absolute, call.span)
        assert isinstance(table, TableEntity)
        cases: list[ir.ActionCase] = []
        default: tuple[ir.Statement, ...] = ()
        seen: set[int] = set()
        for group, has_default, body in self._groups(node):
            places = []
            for one in group:
                place = self._action_label(one.label, table)
                if place in seen:
                    self._at.fail(one.span, "there are two cases with this label")
                seen.add(place)
                places.append(place)
            if has_default:
                default = body
            if places:
                cases.append(ir.ActionCase(tuple(places), body, group[0].span))
        self._at.emit(ir.SwitchAction(applied.node.table, tuple(cases), default, node.span))

    def _action_label(self, node: ast.Expression, table: TableEntity) -> int:
        if not isinstance(node, ast.Name) or node.name not in table.names:
            name = node.name if isinstance(node, ast.Name) else "this"
            self._at.fail(node.span, f"'{name}' is no action of the table")
        return table.names.index(node.name)

    # --- loops

    def _for(self, node: ast.For) -> None:
        self._no_loop_in_parser(node)
        with self._at.inner():
            for one in node.init:
                self.statement(one)
            condition = self._expressions.boolean(node.condition).node
            with self._at.collecting() as update:
                for one in node.update:
                    self.statement(one)
            body = self._loop_body(node.body)
        self._at.emit(ir.For(condition, tuple(update), body, node.span))

    def _no_loop_in_parser(self, node: ast.For | ast.ForIn) -> None:
        if self._at.frame.kind == "parser":
            self._at.fail(node.span, "there is no 'for' in parsers")

    def _loop_body(self, node: ast.Statement) -> tuple[ir.Statement, ...]:
        self._at.frame.loops += 1
        body = self._alone(node)
        self._at.frame.loops -= 1
        return body

    def _for_in(self, node: ast.ForIn) -> None:
        self._no_loop_in_parser(node)
        type_ = self._type_refs.type_of(node.type)
        self._no_variable_of(type_, node.span)
        collection = node.collection
        items: tuple[ir.Expression, ...] = ()
        low = high = None
        if isinstance(collection, ast.Range):
            low = self._expressions.value(collection.low, type_).node
            high = self._expressions.value(collection.high, type_).node
        elif isinstance(collection, ast.ListValue):
            items = tuple(self._expressions.value(one, type_).node for one in collection.elements)
        else:
            items = self._items_of(collection, type_)
        with self._at.inner():
            index = self._at.new_variable(node.name, type_, node.span)
            self._at.declare(node.name, VariableEntity(index, type_, True, node.span), node.span)
            body = self._loop_body(node.body)
        if low is not None and high is not None:
            self._at.emit(ir.ForRange(index, low, high, body, node.span))
        elif items:
            self._at.emit(ir.ForEach(index, items, body, node.span))

    def _items_of(self, node: ast.Expression, type_: types.Type) -> tuple[ir.Expression, ...]:
        """Returns the elements of a header stack or of a value of type list."""
        many = self._expressions.expression(node)
        if not isinstance(many.type, types.Stack | types.ListType):
            self._at.fail(
                node.span,
                f"'for' goes through a range, a list or a header stack, not {types.describe(many.type)}",
            )
        if not same(many.type.element, type_):
            self._at.fail(node.span, f"{types.describe(many.type)} holds no {types.describe(type_)}")
        if isinstance(many.type, types.ListType):
            assert isinstance(many.node, ir.StructValue)
            return many.node.elements
        represented = self._at.represent(type_, node.span)
        literals = [ir.Literal(place, types.BIT32, node.span) for place in range(many.type.size)]
        return tuple(ir.Element(many.node, place, represented, node.span) for place in literals)

    def _break(self, node: ast.Break) -> None:
        if not self._at.frame.loops:
            self._at.fail(node.span, "there is no loop to break out of")
        self._at.emit(ir.Break(node.span))

    def _continue(self, node: ast.Continue) -> None:
        if not self._at.frame.loops:
            self._at.fail(node.span, "there is no loop to continue")
        self._at.emit(ir.Continue(node.span))


def is_constant(node: ir.Expression) -> bool:
    """Returns whether a value is known at load."""
    match node:
        case ir.Literal() | ir.Default():
            return True
        case ir.StructValue(elements=elements) | ir.HeaderValue(elements=elements):
            return all(map(is_constant, elements))
        case ir.StackValue(elements=elements):
            return all(map(is_constant, elements))
    return False
