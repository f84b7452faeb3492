"""Label stacks: golden bytes, round trip, every cut, trailing data, arbitrary bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire import label_stack as ls
from treecast.middleware.wire.label_stack_entries import (
    MIXED,
    NODES,
    SWITCH_BITMASK,
    SWITCH_PORT,
    Entry,
    EntryError,
    EntryFormat,
)

LABEL = st.integers(0, (3 << 14) - 1)
FORMATS = st.sampled_from([SWITCH_PORT, SWITCH_BITMASK, MIXED, NODES, EntryFormat(12, 33, 3)])


def test_golden_bytes() -> None:
    labels = [ls.hop(5), ls.tree(1), ls.stop(ls.LAST_ID)]
    assert ls.encode_labels(labels).hex() == "0003" + "0005" + "8001" + "7fff"
    assert ls.decode_labels(bytes.fromhex("0003000580017fff")) == (labels, 8)
    assert [ls.kind_of(label) for label in labels] == [ls.LabelKind.HOP, ls.LabelKind.TREE, ls.LabelKind.STOP]
    assert [ls.id_of(label) for label in labels] == [5, 1, ls.LAST_ID]
    assert ls.stack_size(3) == 8


@given(st.lists(LABEL, min_size=1, max_size=40), st.binary(max_size=9), st.binary(max_size=9))
def test_round_trip_between_other_bytes(labels: list[int], before: bytes, after: bytes) -> None:
    data = before + ls.encode_labels(labels) + after
    assert ls.decode_labels(memoryview(data), len(before)) == (labels, len(data) - len(after))


def test_every_shorter_piece_is_refused() -> None:
    data = ls.encode_labels([1, 2, 3])
    for length in range(len(data)):
        with pytest.raises(ls.LabelError):
            ls.decode_labels(data[:length])


@given(st.binary(max_size=12), st.booleans())
def test_arbitrary_bytes_are_refused_or_read(data: bytes, empty: bool) -> None:
    try:
        labels, end = ls.decode_labels(data, empty=empty)
    except ls.LabelError:
        return
    assert ls.encode_labels(labels) == data[:end]


def test_count_0_is_for_hosts_only() -> None:
    assert ls.decode_labels(b"\0\0", empty=True) == ([], 2)
    with pytest.raises(ls.LabelError):
        ls.decode_labels(b"\0\0")


def test_what_does_not_fit() -> None:
    for wrong in (-1, 1 << 14):
        with pytest.raises(ValueError):
            ls.tree(wrong)
    with pytest.raises(ValueError):
        ls.encode_labels([3 << 14])
    with pytest.raises(ValueError):
        ls.encode_labels([0] * (ls.MOST_LABELS + 1))
    with pytest.raises(ls.LabelError):
        ls.decode_labels((ls.MOST_LABELS + 1).to_bytes(2) + bytes(2000))
    with pytest.raises(ls.LabelError):
        ls.decode_labels(bytes.fromhex("0001c000"))


def test_entries_golden_bytes() -> None:
    assert SWITCH_PORT.encode([Entry(1, 3), Entry(255, 2)]).hex() == "0002" + "0103" + "ff02"
    assert SWITCH_BITMASK.encode([Entry(7, 0b110)]).hex() == "0001" + "070006"
    # switch 00000000000001, tag 10, value
    assert MIXED.encode([Entry(1, 0xABCD, 2)]).hex() == "0001" + "0006abcd"


@given(st.data(), FORMATS, st.binary(max_size=5), st.binary(max_size=5))
def test_entries_round_trip(data: st.DataObject, form: EntryFormat, before: bytes, after: bytes) -> None:
    field = [st.integers(0, 2**bits - 1) for bits in (form.switch_bits, form.value_bits, form.tag_bits)]
    entries = data.draw(st.lists(st.builds(Entry, *field), max_size=9))
    packed = before + form.encode(entries) + after
    assert form.decode(packed, len(before)) == (entries, len(packed) - len(after))
    for cut in range(len(before), len(packed) - len(after)):
        with pytest.raises(EntryError):
            form.decode(packed[:cut], len(before))


def test_entries_that_do_not_fit() -> None:
    for wrong in (Entry(256, 0), Entry(0, 256), Entry(-1, 0), Entry(0, 0, 1)):
        with pytest.raises(ValueError):
            SWITCH_PORT.encode([wrong])
    with pytest.raises(ValueError):
        SWITCH_PORT.encode([Entry(0, 0)] * 750)
    with pytest.raises(EntryError):
        SWITCH_PORT.decode((750).to_bytes(2) + bytes(3000))
    with pytest.raises(ValueError):
        EntryFormat(8, 9)


def test_switches_have_room_for_as_many_labels_as_a_stack_may_have() -> None:
    programs = Path(__file__).resolve().parents[3] / "p4" / "include" / "labels.p4"
    (room,) = re.findall(r"^#define MOST_LABELS (\d+)$", programs.read_text(), re.MULTILINE)
    assert int(room) == ls.MOST_LABELS
    full = [ls.hop(number) for number in range(ls.MOST_LABELS)]
    assert ls.decode_labels(ls.encode_labels(full))[0] == full
