"""Shared by all parts of the generator: the writer, storage of variables, names and constants."""

from __future__ import annotations

from typing import Protocol

from .. import ir
from ..bits import saturate, saturate_signed
from ..runtime.machine import Machine, walk
from .layout import Layout, Layouts, Unsupported
from .stores import Group, Header, Scalar, Stack, Store, Union, headers_in, list_header
from .writer import Writer

ZERO = {ir.Bool: "False", ir.Varbit: "(0, 0)"}


class Frame:
    """A body being inlined: the place of its result, and how a return leaves it."""

    __slots__ = ("flag", "loops", "result", "wrapped")

    def __init__(self, result: Store | None) -> None:
        self.result = result
        self.wrapped = False  # in a `while True` that a return breaks
        self.loops = 0  # P4 loops open inside of it
        self.flag = ""  # set by a return inside such a loop


class Checks(Protocol):
    """`Parsing`, which knows how a parser ends."""

    def fail_unless(self, condition: str, error: str) -> None: ...


class LookUps(Protocol):
    """`Tables`."""

    def apply_table(self, number: int) -> tuple[str, str]: ...


class Draft:
    """The code that is written, and what is known of it. `env` is the namespace that generated code runs in.

    `parsing` and `tables` set themselves: parts further down need them, as P4 is recursive.
    """

    parsing: Checks
    tables: LookUps

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.program = machine.program
        self.layouts = Layouts(self.program)
        self.env: dict[str, object] = {"saturate": saturate, "saturate_signed": saturate_signed}
        self.writer = Writer()
        self.stores: dict[int, Store] = {}
        self.frames: list[Frame] = []
        self.in_parser = False
        self.requests: set[str] = set()  # possible futures of the packet: clone, resubmit...
        self.colors: set[str] = set()  # variables of direct meters' colours
        self._numbers = 0
        self._exits: dict[int, bool] = {}

    # --- names

    def temp(self) -> str:
        self._numbers += 1
        return f"t{self._numbers}"

    def constant(self, prefix: str, value: object) -> str:
        """Returns a name for an object in the namespace."""
        name = f"{prefix}_{len(self.env)}"
        self.env[name] = value
        return name

    def bound(self, name: str, value: object) -> str:
        """Returns the same with a fixed name."""
        self.env[name] = value
        return name

    # --- stores

    def store_of(self, variable: int) -> Store:
        """Returns the store of a variable, created at its first use."""
        found = self.stores.get(variable)
        if found is None:
            info = self.program.variables[variable]
            found = self.stores[variable] = self.new_store(f"v{variable}", info.type)
        return found

    def new_store(self, name: str, type_: ir.Type) -> Store:
        """Variables for a value of this type."""
        match type_:
            case ir.StructType(fields=fields):
                return Group([self.new_store(f"{name}_{n}", f.type) for n, f in enumerate(fields)], type_)
            case ir.TupleType(elements=elements):
                return Group([self.new_store(f"{name}_{n}", e) for n, e in enumerate(elements)], type_)
            case ir.HeaderType():
                return self._new_header(name, self.layouts.of(type_))
            case ir.UnionType(fields=fields):
                items = [
                    self._new_header(f"{name}_{n}", self.layouts.of(f.type)) for n, f in enumerate(fields)
                ]
                return Union(items, type_)
            case ir.StackType():
                return Stack(name, f"{name}_n", type_)
        return Scalar(name, type_)

    def _new_header(self, name: str, layout: Layout) -> Header:
        fields = {number: f"{name}_{number}" for number in layout.live}
        return Header(layout, f"{name}_v", f"{name}_r", f"{name}_d", fields)

    def default(self, type_: ir.Type) -> Store:
        """Returns the value of something uninitialised."""
        match type_:
            case ir.StructType(fields=fields):
                return Group([self.default(f.type) for f in fields], type_)
            case ir.TupleType(elements=elements):
                return Group([self.default(e) for e in elements], type_)
            case ir.HeaderType():
                return self.default_header(self.layouts.of(type_), "False", "False")
            case ir.UnionType(fields=fields):
                layouts = [self.layouts.of(f.type) for f in fields]
                return Union([self.default_header(one, "False", "False") for one in layouts], type_)
            case ir.StackType(element=element, size=size):
                return Stack(f"[{', '.join([self.fresh_element(element)] * size)}]", "0", type_)
        return Scalar(ZERO.get(type(type_), "0"), type_)

    def default_header(self, layout: Layout, valid: str, dirty: str) -> Header:
        fields = {n: ZERO.get(type(layout.leaves[n].type), "0") for n in layout.live}
        return Header(layout, valid, self.zeros(layout), dirty, fields)

    def zeros(self, layout: Layout) -> str:
        """Returns the bytes of a header of zeros."""
        return self.bound(f"Z{layout.size}", bytes(layout.size))

    def fresh_element(self, type_: ir.Type) -> str:
        """Returns an element of a stack: invalid."""
        if isinstance(type_, ir.UnionType):
            return f"[{', '.join(self.fresh_element(f.type) for f in type_.fields)}]"
        return f"[{', '.join(self.default_header(self.layouts.of(type_), 'False', 'False').texts())}]"

    def element(self, text: str, type_: ir.Type) -> Store:
        """Returns an element of a stack that is in a Python variable."""
        if isinstance(type_, ir.UnionType):
            items = [list_header(self.layouts.of(f.type), f"{text}[{n}]") for n, f in enumerate(type_.fields)]
            return Union(items, type_)
        return list_header(self.layouts.of(type_), text)

    def scalar(self, store: Store) -> str:
        assert isinstance(store, Scalar)
        return store.text

    # --- copying

    def put(self, target: Store, value: Store) -> None:
        """Writes `target = value`, all parts at once."""
        targets, values = self._pairs(target, value)
        self.writer.assign_all(targets, values)
        self.after_put(target)

    def _pairs(self, target: Store, value: Store) -> tuple[list[str], list[str]]:
        match target, value:
            case (Scalar(), Scalar()):
                return [target.text], [value.text]
            case (Header(), Header()):
                return target.texts(), value.texts()
            case (Stack(), Stack()):
                return [target.text, target.next], [self.copied(value), value.next]
            case (Group(items=targets), Group(items=values)):
                return self._all_pairs(list(targets), list(values))
            case (Union(items=to), Union(items=of)):
                return self._all_pairs(list(to), list(of))
        raise Unsupported(f"a copy from {type(value).__name__} to {type(target).__name__}")

    def _all_pairs(self, targets: list[Store], values: list[Store]) -> tuple[list[str], list[str]]:
        pairs = [self._pairs(one, other) for one, other in zip(targets, values, strict=True)]
        return [text for texts, _ in pairs for text in texts], [text for _, texts in pairs for text in texts]

    def copied(self, stack: Stack) -> str:
        """Returns a Python list of its own."""
        if stack.text.startswith("["):
            return stack.text
        if isinstance(stack.type.element, ir.UnionType):
            return f"[[h[:] for h in u] for u in {stack.text}]"
        return f"[h[:] for h in {stack.text}]"

    def after_put(self, target: Store) -> None:
        """Writes side effects of an assignment: the field's header is dirty, the packet differs from the
        received one.
        """
        if isinstance(target, Scalar):
            if target.header is not None:
                self.touch(target.header)
            return
        if isinstance(target, Header) and target.union is not None:
            self.only_in_union(target, f"if {target.valid}:")
        if headers_in(target):
            self.writer.assign("ch", "True")

    def only_in_union(self, header: Header, condition: str) -> None:
        """Makes the other members invalid."""
        assert header.union is not None
        others = [one.valid for one in header.union.items if one is not header]
        if not others:
            return
        if not condition:
            self.writer.assign_all(others, ["False"] * len(others))
            return
        with self.writer.block(condition):
            self.writer.assign_all(others, ["False"] * len(others))

    def touch(self, header: Header) -> None:
        """Marks a field's header as changed."""
        self.writer.assign(header.dirty, "True")
        self.writer.assign("ch", "True")

    # --- what code can do

    def exits(self, body: object) -> bool:
        """Returns whether an `exit` can be reached, through calls too."""
        key = id(body)
        if key not in self._exits:
            self._exits[key] = False
            self._exits[key] = any(self._node_exits(node) for node in walk(body))
        return self._exits[key]

    def _node_exits(self, node: object) -> bool:
        match node:
            case ir.Exit():
                return True
            case ir.CallAction(action=number):
                return self.exits(self.program.actions[number].body)
            case ir.ApplyControl(control=number):
                return self.exits(self.program.controls[number].body)
            case ir.Call(function=number):
                return self.exits(self.program.functions[number].body)
            case ir.TableApply(table=number) | ir.SwitchAction(table=number):
                actions = self.program.tables[number].actions
                return any(self.exits(self.program.actions[one.action].body) for one in actions)
        return False


def has_effects(expression: object) -> bool:
    """Returns whether evaluating it may change something."""
    return any(isinstance(node, ir.Call | ir.ExternCall | ir.TableApply) for node in walk(expression))
