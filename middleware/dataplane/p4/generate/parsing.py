"""Parsers as straight-line code. States with one predecessor are inlined; the others are branches of a loop
over a state number.
"""

from __future__ import annotations

from .. import ir
from ..runtime.machine import MAX_STATES
from ..runtime.shapes import key_width
from .base import Draft
from .expressions import Expressions
from .layout import Unsupported
from .packing import Packing
from .parser_graph import (
    from_whole,
    has_loop,
    is_set,
    jumps_to,
    labels,
    match_text,
    merged,
    targets,
    typed,
    whole_bytes,
)
from .statements import Statements
from .stores import Group, Header, Scalar, Store
from .texts import unsigned

MAX_NESTED = 14  # states inside of each other; deeper ones become branches


class Parsing:
    """`at` is the next byte if it is known; otherwise None, and the variable `o` holds it."""

    at: int | None = 0
    parser: ir.Parser
    labels: set[int]
    waiting: list[int]
    counts_states = False
    nested = 0

    def __init__(
        self, draft: Draft, packing: Packing, expressions: Expressions, statements: Statements
    ) -> None:
        self._draft = draft
        self._packing = packing
        self._expressions = expressions
        self._statements = statements
        draft.parsing = self
        expressions.kinds[ir.Lookahead] = self._lookahead
        statements.kinds |= {
            ir.Extract: self.extract,
            ir.Skip: self.skip,
            ir.Verify: self.verify,
            ir.ApplyParser: self.apply_parser,
        }

    # --- the cursor

    def here(self, plus: int = 0) -> str:
        if self.at is not None:
            return str(self.at + plus)
        return f"o + {plus}" if plus else "o"

    def advance(self, size: int) -> None:
        if self.at is not None:
            self.at += size
        else:
            self._draft.writer.assign("o", f"o + {size}")

    def settle(self) -> None:
        """Writes the position to the variable `o`, which holds it from here on."""
        if self.at is not None:
            self._draft.writer.assign("o", str(self.at))
            self.at = None

    # --- errors

    def fail_unless(self, condition: str, error: str) -> None:
        if self._draft.frames:
            raise Unsupported("a parser error inside of a function")
        with self._draft.writer.block(
            f"if not {condition}:" if " " not in condition else f"if not ({condition}):"
        ):
            self._fail(str(self._draft.program.errors.index(error)))

    def _fail(self, error: str) -> None:
        if self.at is not None:
            self._draft.writer.assign("o", str(self.at))
        self._draft.writer.assign("err", error)
        self._draft.writer.assign("stop", "True")
        self._draft.writer.line("break")

    # --- statements

    def extract(self, s: ir.Extract) -> None:
        header = self._expressions.place(s.target)
        assert isinstance(header, Header)
        if header.layout.varbit is not None:
            self._extract_varbit(s, header)
        else:
            if s.varbit_bits is not None:
                raise Unsupported("a varbit extraction of a header without varbit")
            size = header.layout.size
            self.fail_unless(f"L >= {self.here(size)}", "PacketTooShort")
            self.fill(header)
            self.advance(size)
        if header.union is not None:
            self._draft.only_in_union(header, "")
        self._advance_stack(s.target)

    def _advance_stack(self, target: ir.Expression) -> None:
        if isinstance(target, ir.Member):
            target = target.base
        if isinstance(target, ir.Next):
            stack = self._expressions.stack(target.base)
            self._draft.writer.assign(stack.next, f"{stack.next} + 1")

    def fill(self, header: Header, begin: int = 0) -> None:
        """Writes a header from the bytes here (or `begin` later), which are present."""
        layout = header.layout
        self._draft.writer.assign(header.valid, "True")
        self._draft.writer.assign(header.raw, f"p[{self.here(begin)}:{self.here(begin + layout.size)}]")
        self._draft.writer.assign(header.dirty, "False")
        for number in layout.order():
            leaf = layout.leaves[number]
            text = self.peeked(begin * 8 + leaf.offset, leaf.width, leaf.type)
            self._draft.writer.assign(header.fields[number], text)

    def peeked(self, offset: int, width: int, type_: ir.Type) -> str:
        """Returns a fixed field, `offset` bits from here."""
        first, last = offset >> 3, (offset + width + 7) >> 3
        spare = last * 8 - offset - width
        if width == 0:
            text = "0"
        elif last - first == 1:
            text = f"p[{self.here(first)}]"
        elif last - first == 2:
            text = f"(p[{self.here(first)}] << 8 | p[{self.here(first + 1)}])"
        else:
            text = f"int_(p[{self.here(first)}:{self.here(last)}])"
        if spare:
            text = f"({text} >> {spare})"
        if offset & 7:
            text = f"({text} & {(1 << width) - 1})"
        return typed(text, type_)

    def _extract_varbit(self, s: ir.Extract, header: Header) -> None:
        layout = header.layout
        assert layout.varbit is not None
        varbit = self._expressions.hold(
            "0" if s.varbit_bits is None else self._expressions.text(s.varbit_bits)
        )
        self.settle()
        self.fail_unless(f"not {varbit} & 7", "ParserInvalidArgument")
        end = self._draft.temp()
        self._draft.writer.assign(end, f"o + {layout.size} + ({varbit} >> 3)")
        self.fail_unless(f"L >= {end}", "PacketTooShort")
        self.fail_unless(f"{varbit} <= {layout.leaves[layout.varbit].width}", "HeaderTooShort")
        whole = self._draft.temp()
        self._draft.writer.assign(header.valid, "True")
        self._draft.writer.assign(header.raw, f"p[o:{end}]")
        self._draft.writer.assign(header.dirty, "False")
        self._draft.writer.assign(whole, f"int_(p[o:{end}])")
        for number in layout.order():
            self._draft.writer.assign(header.fields[number], from_whole(layout.leaves[number], whole, varbit))
        self._draft.writer.assign("o", end)

    def skip(self, s: ir.Skip) -> None:
        self._draft.writer.assign("ch", "True")
        if isinstance(s.bits, ir.Literal) and int(s.bits.value) % 8 == 0:
            size = int(s.bits.value) // 8
            self.fail_unless(f"L >= {self.here(size)}", "PacketTooShort")
            self.advance(size)
            return
        if not whole_bytes(s.bits):
            raise Unsupported("an advance that may not be a whole number of bytes")
        bits = self._expressions.hold(self._expressions.text(s.bits))
        self.settle()
        self.fail_unless(f"L >= o + ({bits} >> 3)", "PacketTooShort")
        self._draft.writer.assign("o", f"o + ({bits} >> 3)")

    def verify(self, s: ir.Verify) -> None:
        condition = self._expressions.text(s.condition)
        with self._draft.writer.block(f"if not {condition}:"):
            if self._draft.frames:
                raise Unsupported("verify inside of a function")
            self._fail(self._expressions.text(s.error))

    def _lookahead(self, e: ir.Lookahead) -> Store:
        width = ir.width_of(e.type)
        self.fail_unless(f"L >= {self.here((width + 7) >> 3)}", "PacketTooShort")
        if isinstance(e.type, ir.HeaderType):
            header = self._draft.new_store(self._draft.temp(), e.type)
            assert isinstance(header, Header)
            self.fill(header)
            return header
        store, _ = self._peek_parts(e.type, 0)
        return store

    def _peek_parts(self, type_: ir.Type, offset: int) -> tuple[Store, int]:
        """Returns a value, and the bit behind it."""
        if isinstance(type_, ir.StructType | ir.TupleType):
            inner = type_.elements if isinstance(type_, ir.TupleType) else [f.type for f in type_.fields]
            items = []
            for one in inner:
                store, offset = self._peek_parts(one, offset)
                items.append(store)
            return Group(items, type_), offset
        if isinstance(type_, ir.HeaderType) and offset % 8 == 0:
            header = self._draft.new_store(self._draft.temp(), type_)
            assert isinstance(header, Header)
            self.fill(header, offset // 8)
            return header, offset + header.layout.fixed
        if isinstance(type_, ir.HeaderType | ir.UnionType | ir.StackType | ir.Varbit):
            raise Unsupported("a lookahead of a stack or union, or of a header within a byte")
        width = ir.width_of(type_)
        name = self._draft.temp()
        self._draft.writer.assign(name, self.peeked(offset, width, type_))
        return Scalar(name, type_), offset + width

    # --- states

    def parse(self, parser: ir.Parser) -> None:
        """Writes the main parser, which sets `err` and `o`."""
        self.at = 0
        self._draft.writer.assign("o", "0")
        self._draft.in_parser = True
        self.counts_states = has_loop(parser) or any(
            isinstance(s, ir.ApplyParser) for state in parser.states for s in state.body
        )
        if self.counts_states:
            self._draft.writer.assign("k", "0")
        self._states(parser, {parser.start: 0})
        self._draft.in_parser = False
        self.at = None

    def apply_parser(self, s: ir.ApplyParser) -> None:
        parser = self._draft.program.parsers[s.parser]
        outer = (self.parser, self.labels, self.waiting, self.nested)
        arguments = [(one.direction, one.value) for one in s.arguments]
        aliases, copies = self._statements.arguments(parser.parameters, arguments, True)
        self._statements.copy_in(copies)
        kept = {number: self._draft.stores.get(number) for number in aliases}
        self._draft.stores.update(aliases)
        self.settle()
        self._states(parser, {})
        self._draft.stores.update({n: store for n, store in kept.items() if store is not None})
        self.parser, self.labels, self.waiting, self.nested = outer
        self.at = None
        self._statements.copy_out(copies)
        self._draft.writer.line("if stop: break")

    def _states(self, parser: ir.Parser, known: dict[int, int | None]) -> None:
        self.parser, self.nested = parser, 0
        self.labels = labels(parser)
        offsets = self._offsets(parser, known)
        self._statements.run(parser.setup)
        self.waiting = [parser.start]
        self._draft.writer.assign("st", str(parser.start))
        with self._draft.writer.block("while True:"):
            if self.labels == {parser.start} and not jumps_to(parser, parser.start):
                self._state(parser.start)
                return
            self._branches_of(parser, offsets)

    def _branches_of(self, parser: ir.Parser, offsets: dict[int, int | None]) -> None:
        done: set[int] = set()
        word = "if"
        while self.waiting:
            number = self.waiting.pop(0)
            if number in done:
                continue
            done.add(number)
            self.at = offsets.get(number)
            with self._draft.writer.block(f"{word} st == {number}:"):
                self._state(number)
            word = "elif"

    def _offsets(self, parser: ir.Parser, known: dict[int, int | None]) -> dict[int, int | None]:
        """Returns the byte at which each state begins, if all paths to it agree."""
        offsets: dict[int, int | None] = dict(known)
        waiting = list(known)
        while waiting:
            number = waiting.pop()
            after = self._after(parser.states[number], offsets[number])
            for target in targets(parser.states[number]):
                if target in offsets and offsets[target] in (after, None):
                    continue
                offsets[target] = None if target in offsets else after
                waiting.append(target)
        return offsets

    def _after(self, state: ir.State, at: int | None) -> int | None:
        """Returns the cursor after a state's body."""
        for s in state.body:
            if at is None or isinstance(s, ir.If | ir.ApplyParser):
                return None
            if isinstance(s, ir.Extract):
                layout = self._draft.layouts.of(s.target.type)
                at = None if layout.varbit is not None else at + layout.size
            elif isinstance(s, ir.Skip):
                whole = isinstance(s.bits, ir.Literal) and int(s.bits.value) % 8 == 0
                at = at + int(s.bits.value) // 8 if whole and isinstance(s.bits, ir.Literal) else None
        return at

    def _state(self, number: int) -> None:
        state = self.parser.states[number]
        if self.counts_states:
            self._draft.writer.line("k += 1")
            self.fail_unless(f"k <= {MAX_STATES}", "ParserTimeout")
        for s in state.body:
            if isinstance(s, ir.If):
                self.settle()
        self._statements.run(state.body)
        if isinstance(state.transition, ir.Goto):
            self._go(state.transition.target)
        else:
            self._select(state.transition)

    def _go(self, target: int) -> None:
        if target >= 0:
            if target not in self.labels and self.nested < MAX_NESTED:
                self.nested += 1
                self._state(target)
                self.nested -= 1
                return
            self.labels.add(target)
            self.waiting.append(target)
            if self.at is not None:
                self._draft.writer.assign("o", str(self.at))
            self._draft.writer.assign("st", str(target))
            self._draft.writer.line("continue")
            return
        if self.at is not None:
            self._draft.writer.assign("o", str(self.at))
        if target == ir.REJECT:
            self._draft.writer.assign("stop", "True")
        self._draft.writer.line("break")

    def _select(self, select: ir.Select) -> None:
        keys = [self._expressions.value(key) for key in select.keys]
        texts = [self._expressions.hold(self._draft.scalar(key)) for key in keys]
        word, total, at = "if", False, self.at
        for matches, target in merged(select.cases):
            condition = " or ".join(self._condition(one, texts, select.keys) for one in matches)
            if any(not self._conditions(one, texts) and not is_set(one) for one in matches):
                total = True
                if word == "if":
                    self._go(target)
                    return
                with self._draft.writer.block("else:"):
                    self._go(target)
                break
            with self._draft.writer.block(f"{word} {condition}:"):
                self._go(target)
            word, self.at = "elif", at
        if not total:
            self.at = at
            error = str(self._draft.program.errors.index("NoMatch"))
            if word == "if":
                self._fail(error)
                return
            with self._draft.writer.block("else:"):
                self._fail(error)

    def _condition(
        self, matches: tuple[ir.Match, ...], texts: list[str], keys: tuple[ir.Expression, ...]
    ) -> str:
        if is_set(matches):
            assert isinstance(matches[0], ir.MatchSet)
            number = matches[0].value_set
            parts = [(unsigned(t, k.type), str(key_width(k.type))) for t, k in zip(texts, keys, strict=True)]
            name = self._draft.bound(f"V{number}", self._draft.machine.value_sets[number])
            return f"{name}.has({self._packing.joined(parts)[0]})"
        parts_of = self._conditions(matches, texts)
        return f"({' and '.join(parts_of)})" if len(parts_of) > 1 else "".join(parts_of)

    def _conditions(self, matches: tuple[ir.Match, ...], texts: list[str]) -> list[str]:
        if is_set(matches):
            return []
        pairs = zip(matches, texts, strict=True)
        return [match_text(match, text) for match, text in pairs if not isinstance(match, ir.MatchAny)]
