"""Parses a vector file into statements; every error names the line and points at the word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from . import statements as s
from .lexing import Line, VectorError, number

_PACKET: Final = re.compile(r"\s*(?P<word>packet|expect)\b\s*(?P<rest>[^#]*)", re.IGNORECASE)
_OPERATORS: Final = ("==", "!=", "<=", ">=", "<", ">")
_MOST_BYTES: Final = 1 << 16


def parse(text: str, name: str = "<vectors>") -> tuple[s.Statement, ...]:
    """Returns all statements of a file. Raises VectorError at the first invalid line."""
    found = (_statement(line, number, name) for number, line in enumerate(text.split("\n"), 1))
    return tuple(statement for statement in found if statement is not None)


def _statement(text: str, number: int, name: str) -> s.Statement | None:
    packet = _PACKET.match(text)
    if packet is not None:
        return _packet(packet, text, number, name)
    line = Line(text, number, name)
    if not line.words:
        return None
    word = line.take("name", "a command")
    reader = _READERS.get(word.text.lower())
    if reader is None:
        known = ", ".join(sorted([*_READERS, "packet", "expect"]))
        raise line.error(f"there is no command {word.text!r}; there are {known}", word.column)
    statement = reader(line)
    line.end()
    return statement


def _packet(found: re.Match[str], text: str, number: int, name: str) -> s.Statement:
    """Parses `packet` and `expect`, which have special words: digits without a `0x`, `*` and `$`."""

    def error(message: str, at: int) -> VectorError:
        return VectorError(message, name=name, line=number, column=at + 1, text=text)

    rest, start = found["rest"], found.start("rest")
    port = re.match(r"[0-9]+(?=\s|$|\$)", rest)
    if port is None:
        raise error("a port number is expected here", start)
    nibbles = re.sub(r"\s", "", rest[port.end() :]).upper()
    sent = found["word"].lower() == "packet"
    allowed = "[0-9a-fA-F]" if sent else r"[0-9a-fA-F*]"
    bad = re.search(
        rf"(?!{allowed}|\s)(?!\$\s*$)." if not sent else rf"(?!{allowed}|\s).", rest[port.end() :]
    )
    if bad is not None:
        raise error(f"{bad[0]!r} is no digit of a packet", start + port.end() + bad.start())
    exact = nibbles.endswith("$")
    pattern = nibbles.removesuffix("$")
    if len(pattern) % 2 and (sent or exact):
        raise error(f"{len(pattern)} digits are no whole bytes", start + port.end())
    if len(pattern) > 2 * _MOST_BYTES:
        raise error(f"a packet has at most {_MOST_BYTES} bytes", start + port.end())
    if sent:
        return s.Packet(number, int(port[0]), bytes.fromhex(pattern))
    return s.Expect(number, int(port[0]), pattern if pattern or exact else None, exact)


def _add(line: Line) -> s.Statement:
    table = line.qualified("a table")
    priority = _priority(line)
    matches = _matches(line)
    call = _call(line)
    handle = line.take("name", "the entry's handle").text if line.took("=") else None
    return s.Add(line.number, table, priority, matches, call, handle)


def _priority(line: Line) -> int | None:
    return line.integer("a priority") if line.peek() == "number" else None


def _matches(line: Line) -> tuple[s.KeyValue, ...]:
    """Parses `key:value` pairs up to the action, whose name is followed by a parenthesis."""
    found = []
    while line.peek() == "name":
        start, column = line.at, line.column
        name = line.qualified("a key")
        if not line.took(":"):
            line.at = start
            break
        found.append(s.KeyValue(name, _value(line), column))
    return tuple(found)


def _value(line: Line) -> s.Value:
    """Returns a number, and after it `/ length`, `&&& mask` or `.. high`."""
    word = line.take("number", "a number")
    value = number(word.text)
    if value is None:
        raise line.error("a whole number is expected here", word.column)
    if line.took("/"):
        return replace(value, prefix=line.integer("a prefix length"))
    if line.took("&&&"):
        return replace(value, mask=line.integer("a mask"))
    if line.took(".."):
        return replace(value, high=line.integer("the end of a range"))
    return value


def _call(line: Line) -> s.Call:
    column = line.column
    action = line.qualified("an action")
    line.take("(", "`(`")
    arguments: list[s.KeyValue] = []
    while not line.took(")"):
        if arguments:
            line.take(",", "`,` or `)`")
        at = line.column
        name = line.qualified("an argument's name")
        line.take(":", "`:`")
        arguments.append(s.KeyValue(name, _value(line), at))
    return s.Call(action, tuple(arguments), column)


def _set_default(line: Line) -> s.Statement:
    return s.SetDefault(line.number, line.qualified("a table"), _call(line))


def _remove(line: Line) -> s.Statement:
    if line.took("="):
        return s.Remove(line.number, handle=line.take("name", "a handle").text)
    table = line.qualified("`all`, `=` or a table")
    if table.lower() != "all":
        return s.Remove(line.number, table, None, _priority(line), _matches(line))
    return s.Remove(line.number, line.qualified("a table") if line.peek() == "name" else None)


def _no_packet(line: Line) -> s.Statement:
    return s.NoPacket(line.number, line.integer("a port") if line.peek() else None)


def _wait(line: Line) -> s.Statement:
    return s.Wait(line.number, line.real("a time in seconds") if line.peek() else 0.0)


def _check_counter(line: Line) -> s.Statement:
    name = line.qualified("a counter")
    line.take("(", "`(`")
    index = line.take("name", "").text if line.peek() == "name" else line.integer("an index or a handle")
    line.take(")", "`)`")
    if not line.peek():
        return s.CheckCounter(line.number, name, index, False, None, 0)
    column = line.column
    unit = line.take("name", "`packets` or `bytes`").text.lower()
    if unit not in ("packets", "bytes"):
        raise line.error(f"`packets` or `bytes` is expected here, not {unit!r}", column)
    return s.CheckCounter(
        line.number, name, index, unit == "bytes", _operator(line), line.integer("a number")
    )


def _check_register(line: Line) -> s.Statement:
    name = line.qualified("a register")
    line.take("(", "`(`")
    index = line.integer("an index")
    line.take(")", "`)`")
    return s.CheckRegister(line.number, name, index, _operator(line), line.integer("a number"))


def _operator(line: Line) -> str:
    if line.peek() not in _OPERATORS:
        raise line.error(f"a comparison is expected here: {' '.join(_OPERATORS)}")
    return line.take(line.peek(), "").text


def _ports(line: Line) -> tuple[int, ...]:
    ports = [line.integer("a port")]
    while line.peek():
        ports.append(line.integer("a port"))
    return tuple(ports)


def _rates(line: Line) -> tuple[s.MeterRate, ...]:
    rates: list[s.MeterRate] = []
    while line.peek() or not rates:
        rate = line.real("a rate")
        line.take(":", "`:`")
        rates.append(s.MeterRate(rate, line.integer("a burst")))
    return tuple(rates)


def _counter_write(line: Line) -> s.Statement:
    name = line.qualified("a counter")
    index, packets = line.integer("an index"), line.integer("packets")
    return s.CounterWrite(line.number, name, index, packets, line.integer("bytes"))


def _register_write(line: Line) -> s.Statement:
    name = line.qualified("a register")
    return s.RegisterWrite(line.number, name, line.integer("an index"), line.integer("a value"))


def _meter_write(line: Line) -> s.Statement:
    name = line.qualified("a meter")
    return s.MeterWrite(line.number, name, line.integer("an index"), _rates(line))


def _meter_array_write(line: Line) -> s.Statement:
    return s.MeterWrite(line.number, line.qualified("a meter"), None, _rates(line))


_Reader = Callable[[Line], s.Statement]
_READERS: Final[dict[str, _Reader]] = {
    "add": _add,
    "setdefault": _set_default,
    "remove": _remove,
    "no_packet": _no_packet,
    "wait": _wait,
    "check_counter": _check_counter,
    "check_register": _check_register,
    "mirroring_add": lambda line: s.MirrorToPort(
        line.number, line.integer("a session"), line.integer("a port")
    ),
    "mirroring_add_mc": lambda line: s.MirrorToGroup(
        line.number, line.integer("a session"), line.integer("a group")
    ),
    "mirroring_delete": lambda line: s.MirrorDelete(line.number, line.integer("a session")),
    "mirroring_get": lambda line: s.MirrorGet(line.number, line.integer("a session")),
    "mc_mgrp_create": lambda line: s.GroupCreate(line.number, line.integer("a group")),
    "mc_node_create": lambda line: s.NodeCreate(line.number, line.integer("a replication id"), _ports(line)),
    "mc_node_update": lambda line: s.NodeUpdate(line.number, line.integer("a node handle"), _ports(line)),
    "mc_node_associate": lambda line: s.NodeAssociate(
        line.number, line.integer("a group"), line.integer("a node handle")
    ),
    "counter_read": lambda line: s.CounterRead(
        line.number, line.qualified("a counter"), line.integer("an index")
    ),
    "counter_write": _counter_write,
    "register_read": lambda line: s.RegisterRead(
        line.number, line.qualified("a register"), line.integer("an index")
    ),
    "register_write": _register_write,
    "register_reset": lambda line: s.RegisterReset(line.number, line.qualified("a register")),
    "meter_get_rates": lambda line: s.MeterRead(
        line.number, line.qualified("a meter"), line.integer("an index")
    ),
    "meter_set_rates": _meter_write,
    "meter_array_set_rates": _meter_array_write,
}
