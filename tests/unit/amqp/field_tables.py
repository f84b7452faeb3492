"""Tables as clients encode them, with fields of all types of AMQP 0-9-1."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

_SECONDS = 0xFFFFFFFF
_YEAR_9000_MS = 221_845_305_600_000

# By letter: the values on the wire.
_FIXED = {
    "b": st.integers(-(1 << 7), (1 << 7) - 1).map(lambda one: struct.pack(">b", one)),
    "B": st.integers(0, (1 << 8) - 1).map(lambda one: struct.pack(">B", one)),
    "s": st.integers(-(1 << 15), (1 << 15) - 1).map(lambda one: struct.pack(">h", one)),
    "u": st.integers(0, (1 << 16) - 1).map(lambda one: struct.pack(">H", one)),
    "I": st.integers(-(1 << 31), (1 << 31) - 1).map(lambda one: struct.pack(">i", one)),
    "i": st.integers(0, (1 << 32) - 1).map(lambda one: struct.pack(">I", one)),
    "l": st.integers(-(1 << 63), (1 << 63) - 1).map(lambda one: struct.pack(">q", one)),
    "L": st.integers(-(1 << 63), (1 << 63) - 1).map(lambda one: struct.pack(">q", one)),
    "f": st.floats(width=32).map(lambda one: struct.pack(">f", one)),
    "d": st.floats().map(lambda one: struct.pack(">d", one)),
    "t": st.sampled_from([b"\0", b"\1"]),
    "V": st.just(b""),
    "D": st.tuples(st.integers(0, 255), st.integers(0, (1 << 32) - 1)).map(
        lambda one: struct.pack(">BI", *one)
    ),
    "T": st.integers(0, _SECONDS).map(lambda one: struct.pack(">Q", one)),
}


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def field(letter: str, of: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return of.map(lambda data: letter.encode() + data)


_plain = st.one_of(
    *[field(letter, values) for letter, values in _FIXED.items()],
    field("T", st.integers(_SECONDS + 1, _YEAR_9000_MS).map(lambda one: struct.pack(">Q", one))),
    field("S", st.text(max_size=8).map(lambda one: sized(one.encode()))),
    field("S", st.binary(max_size=8).map(sized)),
    field("x", st.binary(max_size=8).map(sized)),
)
_names = st.text(max_size=5).map(lambda one: bytes((len(one.encode()),)) + one.encode())


def _table(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    rows = st.lists(st.tuples(_names, values), max_size=4, unique_by=lambda row: row[0])
    return rows.map(lambda found: sized(b"".join(name + value for name, value in found)))


_values = st.recursive(
    _plain,
    lambda inner: st.one_of(
        field("A", st.lists(inner, max_size=3).map(lambda found: sized(b"".join(found)))),
        field("F", _table(inner)),
    ),
    max_leaves=8,
)

wire_tables = _table(_values)
