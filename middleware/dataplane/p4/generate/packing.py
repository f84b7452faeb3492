"""Values as bits: headers as bytes, fields side by side."""

from __future__ import annotations

from .. import ir
from ..runtime.shapes import key_width
from .base import Draft
from .layout import Unsupported
from .stores import Group, Header, Scalar, Store
from .texts import unsigned


class Packing:
    """Packs values to emit, hash, match and compare."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def packed(self, header: Header) -> str:
        """Returns a header's bytes."""
        layout = header.layout
        if layout.varbit is not None:
            return self._packed_varbit(header)
        written = sorted(layout.written)
        if not written:
            return header.raw
        keep = (1 << layout.fixed) - 1
        parts = []
        for number in written:
            leaf = layout.leaves[number]
            keep &= ~(((1 << leaf.width) - 1) << leaf.after)
            bits = unsigned(header.fields[number], leaf.type)
            parts.append(f"({bits} << {leaf.after})" if leaf.after else bits)
        if keep:
            parts.insert(0, f"(int_({header.raw}) & {keep})")
        changed = f"({' | '.join(parts)}).to_bytes({layout.size}, 'big')"
        if header.dirty == "True":
            return changed
        return f"({changed} if {header.dirty} else {header.raw})"

    def _packed_varbit(self, header: Header) -> str:
        layout = header.layout
        assert layout.varbit is not None
        varbit = header.fields[layout.varbit]
        return f"(({self._side_by_side(header)}).to_bytes(({layout.fixed} + {varbit}[1]) >> 3, 'big'))"

    def _side_by_side(self, header: Header) -> str:
        """Returns all leaves as one number."""
        total = "0"
        for number, leaf in enumerate(header.layout.leaves):
            text = header.fields[number]
            if isinstance(leaf.type, ir.Varbit):
                total = f"(({total} << {text}[1]) | {text}[0])"
            else:
                total = f"(({total} << {leaf.width}) | {unsigned(text, leaf.type)})"
        return total

    def bits_of(self, store: Store) -> tuple[str, str]:
        """Returns a value's bits side by side, and their number."""
        if isinstance(store, Scalar):
            if isinstance(store.type, ir.Varbit):
                return f"{store.text}[0]", f"{store.text}[1]"
            return unsigned(store.text, store.type), str(key_width(store.type))
        if isinstance(store, Header):
            if store.layout.varbit is None:
                return f"int_({self.packed(store)})", str(store.layout.fixed)
            return self._side_by_side(
                store
            ), f"({store.layout.fixed} + {store.fields[store.layout.varbit]}[1])"
        return self.joined(self.parts_of(store))

    def parts_of(self, store: Store) -> list[tuple[str, str]]:
        """Returns the bits of each part, and their number."""
        if isinstance(store, Scalar | Header):
            return [self.bits_of(store)]
        if not isinstance(store, Group):
            raise Unsupported("the bits of a stack or union")
        return [part for item in store.items for part in self.parts_of(item)]

    def joined(self, parts: list[tuple[str, str]]) -> tuple[str, str]:
        """Bits side by side, the first one highest."""
        if all(width.isdigit() for _, width in parts):
            return self._joined_fixed([(bits, int(width)) for bits, width in parts])
        total, size = "0", "0"
        for bits, width in parts:
            total, size = f"(({total} << {width}) | {bits})", f"({size} + {width})"
        return total, size

    def _joined_fixed(self, parts: list[tuple[str, int]]) -> tuple[str, str]:
        size = sum(width for _, width in parts)
        left, texts = size, []
        for bits, width in parts:
            left -= width
            texts.append(f"({bits} << {left})" if left else bits)
        return (f"({' | '.join(texts)})" if len(texts) > 1 else texts[0] if texts else "0"), str(size)
