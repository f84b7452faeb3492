"""The statements of a vector file as values, one per line.

The language is p4c's STF as its bmv2 tests use it (p4lang/p4c, `tools/stf` and `backends/bmv2/bmv2stf.py`),
extended by masks, ranges, removal of one entry, and checks of registers.
"""

from __future__ import annotations

from msgspec import Struct


class Value(Struct, frozen=True):
    """A number as written. `digits` is the mask of the given digits, with 0 bits for a `*`.

    `bits` is the number of bits that the digits span: 4 for each of `0x`, 1 for each of `0b`, 0 for decimal
    numbers, which have no width. `mask` is set if one was written (`&&&`), `prefix` after a slash, `high` is
    the end of a range (`..`).
    """

    number: int
    digits: int = 0
    bits: int = 0
    stars: bool = False
    mask: int | None = None
    prefix: int | None = None
    high: int | None = None


class KeyValue(Struct, frozen=True):
    """`name:value`, of a match or of an action's argument."""

    name: str
    value: Value
    column: int


class Call(Struct, frozen=True):
    """`action(argument:value, ...)`."""

    action: str
    arguments: tuple[KeyValue, ...]
    column: int


class Statement(Struct, frozen=True):
    """The base of all statements: the line, from 1."""

    line: int


class Add(Statement, frozen=True):
    """`add TABLE [PRIORITY] KEY:VALUE ... ACTION(...) [= HANDLE]`. The highest priority wins, as in p4c."""

    table: str
    priority: int | None
    matches: tuple[KeyValue, ...]
    call: Call
    handle: str | None = None


class SetDefault(Statement, frozen=True):
    """`setdefault TABLE ACTION(...)`."""

    table: str
    call: Call


class Remove(Statement, frozen=True):
    """`remove all`, `remove all TABLE`, `remove = HANDLE` or `remove TABLE [PRIORITY] KEY:VALUE ...`."""

    table: str | None = None
    handle: str | None = None
    priority: int | None = None
    matches: tuple[KeyValue, ...] = ()


class Packet(Statement, frozen=True):
    """`packet PORT BYTES`."""

    port: int
    data: bytes


class Expect(Statement, frozen=True):
    """`expect PORT [NIBBLES]`: the next packet of that port. `*` is any nibble, `$` ends the packet.

    Without a pattern any packet does. Without `$` more bytes may follow. `pattern` is in upper case.
    """

    port: int
    pattern: str | None
    exact: bool


class NoPacket(Statement, frozen=True):
    """`no_packet [PORT]`: nothing has come out (of that port) that is not expected above this line."""

    port: int | None


class Wait(Statement, frozen=True):
    """`wait [SECONDS]`: advances the switch's clock."""

    seconds: float


class CheckCounter(Statement, frozen=True):
    """`check_counter NAME(INDEX or HANDLE) [packets|bytes OP NUMBER]`; without a check the cell only has to
    exist."""

    name: str
    index: int | str
    bytes: bool
    operator: str | None
    number: int


class CheckRegister(Statement, frozen=True):
    """`check_register NAME(INDEX) OP NUMBER`. Ours; p4c reads registers without looking."""

    name: str
    index: int
    operator: str
    number: int


class MirrorToPort(Statement, frozen=True):
    """`mirroring_add SESSION PORT`."""

    session: int
    port: int


class MirrorToGroup(Statement, frozen=True):
    """`mirroring_add_mc SESSION GROUP`."""

    session: int
    group: int


class MirrorDelete(Statement, frozen=True):
    """`mirroring_delete SESSION`."""

    session: int


class MirrorGet(Statement, frozen=True):
    """`mirroring_get SESSION`: the session has to exist."""

    session: int


class GroupCreate(Statement, frozen=True):
    """`mc_mgrp_create GROUP`."""

    group: int


class NodeCreate(Statement, frozen=True):
    """`mc_node_create RID PORT ...`: the next node handle, from 0, replicates to these ports."""

    rid: int
    ports: tuple[int, ...]


class NodeUpdate(Statement, frozen=True):
    """`mc_node_update HANDLE PORT ...`."""

    node: int
    ports: tuple[int, ...]


class NodeAssociate(Statement, frozen=True):
    """`mc_node_associate GROUP HANDLE`."""

    group: int
    node: int


class CounterRead(Statement, frozen=True):
    """`counter_read NAME INDEX`."""

    name: str
    index: int


class CounterWrite(Statement, frozen=True):
    """`counter_write NAME INDEX PACKETS BYTES`."""

    name: str
    index: int
    packets: int
    bytes: int


class RegisterRead(Statement, frozen=True):
    """`register_read NAME INDEX`."""

    name: str
    index: int


class RegisterWrite(Statement, frozen=True):
    """`register_write NAME INDEX VALUE`."""

    name: str
    index: int
    value: int


class RegisterReset(Statement, frozen=True):
    """`register_reset NAME`: all cells are 0."""

    name: str


class MeterRead(Statement, frozen=True):
    """`meter_get_rates NAME INDEX`."""

    name: str
    index: int


class MeterRate(Struct, frozen=True):
    """bmv2's form: units a microsecond, and the burst in units."""

    rate: float
    burst: int


class MeterWrite(Statement, frozen=True):
    """`meter_set_rates NAME INDEX RATE:BURST RATE:BURST`; `meter_array_set_rates` has no index: all cells."""

    name: str
    index: int | None
    rates: tuple[MeterRate, ...]
