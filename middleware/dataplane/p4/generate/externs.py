"""v1model's extern functions and methods, as lines."""

from __future__ import annotations

from .. import ir
from ..ir.externs import METHODS
from ..runtime.arrays import CounterArray, MeterArray, RegisterArray
from ..runtime.counts import DROP_ASSERT
from ..runtime.machine import digest_name, is_standard
from ..runtime.select import ALGORITHMS
from ..runtime.text import format_log
from .layout import Unsupported
from .stores import Group, Header, Scalar, Store
from .tables import Tables
from .texts import inside, signed, unsigned, wrap


class Externs(Tables):
    """Calls by name."""

    def _extern_call(self, e: ir.ExternCall) -> Store:
        found: Store | None = getattr(self, METHODS[e.name])(e)
        return found or Scalar("None", e.type)

    def _scalars(self, call: ir.ExternCall) -> list[str]:
        """Returns the texts of all arguments; none is an out argument."""
        return [self.text(one.value) for one in call.arguments]

    def _array(self, call: ir.ExternCall) -> object:
        assert call.instance is not None
        return self.machine.externs[call.instance]

    # --- objects

    def _count(self, call: ir.ExternCall) -> None:
        array = self._array(call)
        assert isinstance(array, CounterArray)
        name = f"C{call.instance}"
        index = self.hold(self.text(call.arguments[0].value))
        self.bound(f"{name}_p", array.packets)
        self.bound(f"{name}_b", array.bytes)
        with self.writer.block(f"if {inside(index, call.arguments[0].value.type, array.size)}:"):
            self.writer.line(f"{name}_p[{index}] += 1")
            self.writer.line(f"{name}_b[{index}] += L")

    def _count_direct(self, call: ir.ExternCall) -> None:
        """Writes nothing: the look-up has counted."""

    def _execute_meter(self, call: ir.ExternCall) -> None:
        array = self._array(call)
        assert isinstance(array, MeterArray)
        index = self.hold(self.text(call.arguments[0].value))
        target = self.place(call.arguments[1].value)
        execute = self.bound(f"X{call.instance}_execute", array.execute)
        color = self.temp()
        with self.writer.block(f"if {inside(index, call.arguments[0].value.type, array.size)}:"):
            self.writer.line(f"{color} = {execute}({index}, L, now)")
            self.store(target, self._fitted(color, call.arguments[1].value.type))

    def _read_direct_meter(self, call: ir.ExternCall) -> None:
        target = self.place(call.arguments[0].value)
        name = f"m{call.instance}"
        self.colors.add(name)
        self.store(target, self._fitted(name, call.arguments[0].value.type))

    def _fitted(self, text: str, type_: ir.Type) -> Scalar:
        return Scalar(wrap(text, type_), type_)

    def _register(self, call: ir.ExternCall) -> tuple[RegisterArray, str]:
        array = self._array(call)
        assert isinstance(array, RegisterArray)
        return array, self.bound(f"R{call.instance}", array.cells)

    def _read_register(self, call: ir.ExternCall) -> None:
        array, cells = self._register(call)
        target = self.place(call.arguments[0].value)
        index_type = call.arguments[1].value.type
        index = self.hold(self.text(call.arguments[1].value))
        type_ = call.arguments[0].value.type
        text = f"{cells}[{index}]"
        if signed(index_type) or 1 << ir.width_of(index_type) > array.size:
            text = f"({text} if {inside(index, index_type, array.size)} else 0)"
        name = self.temp()
        self.writer.assign(name, f"{text} != 0" if isinstance(type_, ir.Bool) else text)
        self.store(target, Scalar(name, type_))

    def _write_register(self, call: ir.ExternCall) -> None:
        array, cells = self._register(call)
        index = self.hold(self.text(call.arguments[0].value))
        value = self.text(call.arguments[1].value)
        if isinstance(call.arguments[1].value.type, ir.Bool):
            value = f"(1 if {value} else 0)"
        with self.writer.block(f"if {inside(index, call.arguments[0].value.type, array.size)}:"):
            self.writer.line(f"{cells}[{index}] = {value}")

    # --- numbers

    def _hashed(self, algorithm: ir.Expression, parts: list[tuple[str, str]]) -> str:
        """Returns the hash of the parts, side by side."""
        if not isinstance(algorithm, ir.Literal) or not isinstance(algorithm.type, ir.Enum):
            raise Unsupported("a hash algorithm that isn't known at load")
        name = algorithm.type.members[int(algorithm.value)]
        function = ALGORITHMS.get(name)
        if function is None:
            number = self.temp()
            self.writer.line(f"{number} = {self.bound('random_', self.machine.random)}.next64()")
            return number
        if name == "csum16" and all(width.isdigit() for _, width in parts):
            return self._csum16([(bits, int(width)) for bits, width in parts])
        bits, width = self.joined(parts)
        return f"{self.bound(f'hash_{name}', function)}({bits}, {width})"

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
        total = self.temp()
        self.writer.assign(total, " + ".join(texts) or "0")
        return f"(65535 - ({total} % 65535 or (65535 if {total} else 0)))"

    def _hash(self, call: ir.ExternCall) -> None:
        result, algorithm, base, data, size = (one.value for one in call.arguments)
        target = self.place(result)
        number = self._hashed(algorithm, self.parts_of(self.value(data)))
        low, high = self.text(base), self.hold(self.text(size))
        if high.isdigit():
            text = f"{low} + {number} % {high}" if int(high) else low
        else:
            text = f"{low} + ({number} % {high} if {high} > 0 else 0)"
        text = f"({text} & {(1 << 64) - 1})"
        self.store(target, self._fitted(text, result.type))

    def _random(self, call: ir.ExternCall) -> None:
        target = self.place(call.arguments[0].value)
        low, high = (self.text(one.value) for one in call.arguments[1:])
        number = self.temp()
        between = self.bound("between", self.machine.random.between)
        self.writer.line(f"{number} = {between}({low}, {high})")
        self.store(target, Scalar(number, call.arguments[0].value.type))

    def _checksum16(self, call: ir.ExternCall) -> Store:
        bits, width = self.bits_of(self.value(call.arguments[0].value))
        function = self.bound("hash_csum16", ALGORITHMS["csum16"])
        return Scalar(f"{function}({bits}, {width})", call.type)

    # --- checksums

    def _checked(self, call: ir.ExternCall) -> str:
        parts = self.parts_of(self.value(call.arguments[1].value))
        if call.name.endswith("payload"):
            parts.append(("int_(p[o:])", "((L - o) << 3)"))
        number, type_ = self._hashed(call.arguments[3].value, parts), call.arguments[2].value.type
        return number if number.startswith("(65535 -") and ir.width_of(type_) >= 16 else wrap(number, type_)

    def _verify_checksum(self, call: ir.ExternCall) -> None:
        condition = self.writer.block(f"if {self.text(call.arguments[0].value)}:")
        with (
            condition,
            self.writer.block(f"if {self._checked(call)} != {self.text(call.arguments[2].value)}:"),
        ):
            self.writer.assign("checksum_error", "1")

    def _update_checksum(self, call: ir.ExternCall) -> None:
        target = self.place(call.arguments[2].value)
        with self.writer.block(f"if {self.text(call.arguments[0].value)}:"):
            self.store(target, Scalar(self._checked(call), call.arguments[2].value.type))

    # --- the packet's future

    def _mark_to_drop(self, call: ir.ExternCall) -> None:
        if call.arguments:
            self._drop(self.place(call.arguments[0].value))
            return
        found = [one for one in self.stores.values() if isinstance(one, Group) and is_standard(one.type)]
        for meta in {id(one): one for one in found}.values():  # the old form: all metadata
            self._drop(meta)

    def _drop(self, meta: Store) -> None:
        assert isinstance(meta, Group)
        assert isinstance(meta.type, ir.StructType)
        for field, store in zip(meta.type.fields, meta.items, strict=True):
            if field.name == "egress_spec":
                self.store(store, Scalar(str(self.machine.drop_port), field.type))
            elif field.name == "mcast_grp":
                self.store(store, Scalar("0", field.type))

    def _clone(self, call: ir.ExternCall) -> None:
        session = self.text(call.arguments[1].value)
        fields = self.text(call.arguments[2].value) if call.name == "clone_preserving_field_list" else "-1"
        self.requests.add("q_clone")
        self.writer.assign("q_clone", f"({session}, {fields})")

    def _resubmit(self, call: ir.ExternCall) -> None:
        self._request("q_resubmit", call)

    def _recirculate(self, call: ir.ExternCall) -> None:
        self._request("q_recirculate", call)

    def _request(self, name: str, call: ir.ExternCall) -> None:
        self.requests.add(name)
        fields = self._scalars(call)[0] if call.name.endswith("_preserving_field_list") else "-1"
        self.writer.assign(name, fields)

    def _truncate(self, call: ir.ExternCall) -> None:
        length = self.hold(self.text(call.arguments[0].value))
        self.requests.add("q_cut")
        self.writer.assign("q_cut", f"{length} if q_cut is None or {length} < q_cut else q_cut")

    # --- what goes to people and controllers

    def _digest(self, call: ir.ExternCall) -> None:
        numbers = self._leaf_numbers(self.value(call.arguments[1].value))
        digest = self.bound("digest_", self.machine.digest)
        self.writer.line(f"{digest}({digest_name(call)!r}, ({''.join(n + ', ' for n in numbers)}), now)")

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
        log = self.bound("log_", self.machine.log.append)
        with self.writer.block(f"if not {check}:"):
            self.writer.line(f"{log}({f'{call.span}: {call.name} failed'!r})")
            self.writer.line(f"raise Drop_({DROP_ASSERT!r})")

    def _log_msg(self, call: ir.ExternCall) -> None:
        text = self._scalars(call)[:1] if len(call.arguments) == 1 else [self.text(call.arguments[0].value)]
        numbers = [] if len(call.arguments) < 2 else self._shown(self.value(call.arguments[1].value))
        log = self.bound("log_", self.machine.log.append)
        show = self.bound("format_log", format_log)
        self.writer.line(f"{log}({show}({text[0]}, [{', '.join(numbers)}]))")

    def _shown(self, store: Store) -> list[str]:
        """Numbers as the program sees them."""
        if isinstance(store, Scalar):
            return [f"{store.text}[0]" if isinstance(store.type, ir.Varbit) else f"int({store.text})"]
        if isinstance(store, Header):
            return [number for leaf in self._fields(store) for number in self._shown(leaf)]
        if not isinstance(store, Group):
            raise Unsupported("a stack or union in a log message")
        return [number for item in store.items for number in self._shown(item)]
