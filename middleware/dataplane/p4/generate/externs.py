"""v1model's extern functions and methods, as lines."""

from __future__ import annotations

from .. import ir
from ..ir.externs import METHODS
from ..runtime.arrays import CounterArray, MeterArray, RegisterArray
from ..runtime.counts import DROP_ASSERT
from ..runtime.machine import digest_name, is_standard
from ..runtime.select import ALGORITHMS
from ..runtime.text import format_log
from .base import Draft
from .expressions import Expressions
from .layout import Unsupported
from .packing import Packing
from .statements import Statements
from .stores import Group, Header, Scalar, Store
from .texts import inside, signed, unsigned, wrap


class Externs:
    """Calls by name."""

    def __init__(
        self, draft: Draft, packing: Packing, expressions: Expressions, statements: Statements
    ) -> None:
        self._draft = draft
        self._packing = packing
        self._expressions = expressions
        self._statements = statements
        expressions.kinds[ir.ExternCall] = self._extern_call

    def _extern_call(self, e: ir.ExternCall) -> Store:
        found: Store | None = getattr(self, METHODS[e.name])(e)
        return found or Scalar("None", e.type)

    def _scalars(self, call: ir.ExternCall) -> list[str]:
        """Returns the texts of all arguments; none is an out argument."""
        return [self._expressions.text(one.value) for one in call.arguments]

    def _array(self, call: ir.ExternCall) -> object:
        assert call.instance is not None
        return self._draft.machine.externs[call.instance]

    # --- objects

    def _count(self, call: ir.ExternCall) -> None:
        array = self._array(call)
        assert isinstance(array, CounterArray)
        name = f"C{call.instance}"
        index = self._expressions.hold(self._expressions.text(call.arguments[0].value))
        self._draft.bound(f"{name}_p", array.packets)
        self._draft.bound(f"{name}_b", array.bytes)
        with self._draft.writer.block(f"if {inside(index, call.arguments[0].value.type, array.size)}:"):
            self._draft.writer.line(f"{name}_p[{index}] += 1")
            self._draft.writer.line(f"{name}_b[{index}] += L")

    def _count_direct(self, call: ir.ExternCall) -> None:
        """Writes nothing: the look-up has counted."""

    def _execute_meter(self, call: ir.ExternCall) -> None:
        array = self._array(call)
        assert isinstance(array, MeterArray)
        index = self._expressions.hold(self._expressions.text(call.arguments[0].value))
        target = self._expressions.place(call.arguments[1].value)
        execute = self._draft.bound(f"X{call.instance}_execute", array.execute)
        color = self._draft.temp()
        with self._draft.writer.block(f"if {inside(index, call.arguments[0].value.type, array.size)}:"):
            self._draft.writer.line(f"{color} = {execute}({index}, L, now)")
            self._statements.store(target, self._fitted(color, call.arguments[1].value.type))

    def _read_direct_meter(self, call: ir.ExternCall) -> None:
        target = self._expressions.place(call.arguments[0].value)
        name = f"m{call.instance}"
        self._draft.colors.add(name)
        self._statements.store(target, self._fitted(name, call.arguments[0].value.type))

    def _fitted(self, text: str, type_: ir.Type) -> Scalar:
        return Scalar(wrap(text, type_), type_)

    def _register(self, call: ir.ExternCall) -> tuple[RegisterArray, str]:
        array = self._array(call)
        assert isinstance(array, RegisterArray)
        return array, self._draft.bound(f"R{call.instance}", array.cells)

    def _read_register(self, call: ir.ExternCall) -> None:
        array, cells = self._register(call)
        target = self._expressions.place(call.arguments[0].value)
        index_type = call.arguments[1].value.type
        index = self._expressions.hold(self._expressions.text(call.arguments[1].value))
        type_ = call.arguments[0].value.type
        text = f"{cells}[{index}]"
        if signed(index_type) or 1 << ir.width_of(index_type) > array.size:
            text = f"({text} if {inside(index, index_type, array.size)} else 0)"
        name = self._draft.temp()
        self._draft.writer.assign(name, f"{text} != 0" if isinstance(type_, ir.Bool) else text)
        self._statements.store(target, Scalar(name, type_))

    def _write_register(self, call: ir.ExternCall) -> None:
        array, cells = self._register(call)
        index = self._expressions.hold(self._expressions.text(call.arguments[0].value))
        value = self._expressions.text(call.arguments[1].value)
        if isinstance(call.arguments[1].value.type, ir.Bool):
            value = f"(1 if {value} else 0)"
        with self._draft.writer.block(f"if {inside(index, call.arguments[0].value.type, array.size)}:"):
            self._draft.writer.line(f"{cells}[{index}] = {value}")

    # --- numbers

    def _hashed(self, algorithm: ir.Expression, parts: list[tuple[str, str]]) -> str:
        """Returns the hash of the parts, side by side."""
        if not isinstance(algorithm, ir.Literal) or not isinstance(algorithm.type, ir.Enum):
            raise Unsupported("a hash algorithm that isn't known at load")
        name = algorithm.type.members[int(algorithm.value)]
        function = ALGORITHMS.get(name)
        if function is None:
            number = self._draft.temp()
            self._draft.writer.line(
                f"{number} = {self._draft.bound('random_', self._draft.machine.random)}.next64()"
            )
            return number
        if name == "csum16" and all(width.isdigit() for _, width in parts):
            return self._csum16([(bits, int(width)) for bits, width in parts])
        bits, width = self._packing.joined(parts)
        return f"{self._draft.bound(f'hash_{name}', function)}({bits}, {width})"

    def _csum16(self, parts: list[tuple[str, int]]) -> str:
        """Returns the ones' complement sum as the remainder of a division by 65535. As 2**16 has the
        remainder 1, only a part's position within its 16 bits matters, and no long number is needed.
        """
        left = sum(width for _, width in parts)
        left += -left & 15
        texts = []
        for bits, width in parts:
            left -= width
            texts.append(f"({bits} << {left & 15})" if left & 15 else bits)
        total = self._draft.temp()
        self._draft.writer.assign(total, " + ".join(texts) or "0")
        return f"(65535 - ({total} % 65535 or (65535 if {total} else 0)))"

    def _hash(self, call: ir.ExternCall) -> None:
        result, algorithm, base, data, size = (one.value for one in call.arguments)
        target = self._expressions.place(result)
        number = self._hashed(algorithm, self._packing.parts_of(self._expressions.value(data)))
        low, high = self._expressions.text(base), self._expressions.hold(self._expressions.text(size))
        if high.isdigit():
            text = f"{low} + {number} % {high}" if int(high) else low
        else:
            text = f"{low} + ({number} % {high} if {high} > 0 else 0)"
        text = f"({text} & {(1 << 64) - 1})"
        self._statements.store(target, self._fitted(text, result.type))

    def _random(self, call: ir.ExternCall) -> None:
        target = self._expressions.place(call.arguments[0].value)
        low, high = (self._expressions.text(one.value) for one in call.arguments[1:])
        number = self._draft.temp()
        between = self._draft.bound("between", self._draft.machine.random.between)
        self._draft.writer.line(f"{number} = {between}({low}, {high})")
        self._statements.store(target, Scalar(number, call.arguments[0].value.type))

    def _checksum16(self, call: ir.ExternCall) -> Store:
        bits, width = self._packing.bits_of(self._expressions.value(call.arguments[0].value))
        function = self._draft.bound("hash_csum16", ALGORITHMS["csum16"])
        return Scalar(f"{function}({bits}, {width})", call.type)

    # --- checksums

    def _checked(self, call: ir.ExternCall) -> str:
        parts = self._packing.parts_of(self._expressions.value(call.arguments[1].value))
        if call.name.endswith("payload"):
            parts.append(("int_(p[o:])", "((L - o) << 3)"))
        number, type_ = self._hashed(call.arguments[3].value, parts), call.arguments[2].value.type
        return number if number.startswith("(65535 -") and ir.width_of(type_) >= 16 else wrap(number, type_)

    def _verify_checksum(self, call: ir.ExternCall) -> None:
        condition = self._draft.writer.block(f"if {self._expressions.text(call.arguments[0].value)}:")
        with (
            condition,
            self._draft.writer.block(
                f"if {self._checked(call)} != {self._expressions.text(call.arguments[2].value)}:"
            ),
        ):
            self._draft.writer.assign("checksum_error", "1")

    def _update_checksum(self, call: ir.ExternCall) -> None:
        target = self._expressions.place(call.arguments[2].value)
        with self._draft.writer.block(f"if {self._expressions.text(call.arguments[0].value)}:"):
            self._statements.store(target, Scalar(self._checked(call), call.arguments[2].value.type))

    # --- the packet's future

    def _mark_to_drop(self, call: ir.ExternCall) -> None:
        if call.arguments:
            self._drop(self._expressions.place(call.arguments[0].value))
            return
        found = [
            one for one in self._draft.stores.values() if isinstance(one, Group) and is_standard(one.type)
        ]
        for meta in {id(one): one for one in found}.values():  # the old form: all metadata
            self._drop(meta)

    def _drop(self, meta: Store) -> None:
        assert isinstance(meta, Group)
        assert isinstance(meta.type, ir.StructType)
        for field, store in zip(meta.type.fields, meta.items, strict=True):
            if field.name == "egress_spec":
                self._statements.store(store, Scalar(str(self._draft.machine.drop_port), field.type))
            elif field.name == "mcast_grp":
                self._statements.store(store, Scalar("0", field.type))

    def _clone(self, call: ir.ExternCall) -> None:
        session = self._expressions.text(call.arguments[1].value)
        fields = (
            self._expressions.text(call.arguments[2].value)
            if call.name == "clone_preserving_field_list"
            else "-1"
        )
        self._draft.requests.add("q_clone")
        self._draft.writer.assign("q_clone", f"({session}, {fields})")

    def _resubmit(self, call: ir.ExternCall) -> None:
        self._request("q_resubmit", call)

    def _recirculate(self, call: ir.ExternCall) -> None:
        self._request("q_recirculate", call)

    def _request(self, name: str, call: ir.ExternCall) -> None:
        self._draft.requests.add(name)
        fields = self._scalars(call)[0] if call.name.endswith("_preserving_field_list") else "-1"
        self._draft.writer.assign(name, fields)

    def _truncate(self, call: ir.ExternCall) -> None:
        length = self._expressions.hold(self._expressions.text(call.arguments[0].value))
        self._draft.requests.add("q_cut")
        self._draft.writer.assign("q_cut", f"{length} if q_cut is None or {length} < q_cut else q_cut")

    # --- what goes to people and controllers

    def _digest(self, call: ir.ExternCall) -> None:
        numbers = self._leaf_numbers(self._expressions.value(call.arguments[1].value))
        digest = self._draft.bound("digest_", self._draft.machine.digest)
        self._draft.writer.line(
            f"{digest}({digest_name(call)!r}, ({''.join(n + ', ' for n in numbers)}), now)"
        )

    def _leaf_numbers(self, store: Store) -> list[str]:
        if isinstance(store, Scalar):
            if isinstance(store.type, ir.Varbit):
                return [f"{store.text}[0]"]
            return [
                f"int({store.text})" if isinstance(store.type, ir.Bool) else unsigned(store.text, store.type)
            ]
        if isinstance(store, Group):
            return [number for item in store.items for number in self._leaf_numbers(item)]
        if isinstance(store, Header):
            return [number for leaf in self._fields(store) for number in self._leaf_numbers(leaf)]
        raise Unsupported("a digest of a stack or union")

    def _fields(self, header: Header) -> list[Scalar]:
        """Returns all fields, which a digest or message of the whole header makes variables."""
        return [Scalar(header.fields[n], leaf.type) for n, leaf in enumerate(header.layout.leaves)]

    def _assert(self, call: ir.ExternCall) -> None:
        check = self._scalars(call)[0]
        log = self._draft.bound("log_", self._draft.machine.log.append)
        with self._draft.writer.block(f"if not {check}:"):
            self._draft.writer.line(f"{log}({f'{call.span}: {call.name} failed'!r})")
            self._draft.writer.line(f"raise Drop_({DROP_ASSERT!r})")

    def _log_msg(self, call: ir.ExternCall) -> None:
        text = (
            self._scalars(call)[:1]
            if len(call.arguments) == 1
            else [self._expressions.text(call.arguments[0].value)]
        )
        numbers = (
            [] if len(call.arguments) < 2 else self._shown(self._expressions.value(call.arguments[1].value))
        )
        log = self._draft.bound("log_", self._draft.machine.log.append)
        show = self._draft.bound("format_log", format_log)
        self._draft.writer.line(f"{log}({show}({text[0]}, [{', '.join(numbers)}]))")

    def _shown(self, store: Store) -> list[str]:
        """Numbers as the program sees them."""
        if isinstance(store, Scalar):
            return [f"{store.text}[0]" if isinstance(store.type, ir.Varbit) else f"int({store.text})"]
        if isinstance(store, Header):
            return [number for leaf in self._fields(store) for number in self._shown(leaf)]
        if not isinstance(store, Group):
            raise Unsupported("a stack or union in a log message")
        return [number for item in store.items for number in self._shown(item)]
