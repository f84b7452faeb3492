"""Runs the statements of a vector file on a switch, and reports deviations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from .. import ir
from ..runtime import ControlError, CounterData, Entry, Matches, MeterConfig, Switch
from . import statements as s
from .compare import difference, side_by_side
from .replication import Replication
from .resolve import ResolveError, find_extern, find_table

_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PORTS: Final = range(510)
"""The ports of a switch for vectors: every port but the CPU's and the drop port, so that no packet goes
unseen.
"""
_MICROSECOND: Final = 1_000_000


class Problem(msgspec.Struct, frozen=True):
    """A deviation from the file. `word` is in the line; `detail` may have several lines."""

    line: int
    message: str
    word: str = ""
    detail: str = ""


class Report(msgspec.Struct):
    """The result of a run. `read` has the results of `register_read` and similar statements: line, text."""

    problems: list[Problem] = []
    packets_in: int = 0
    packets_out: int = 0
    expected: int = 0
    met: int = 0
    elsewhere: int = 0
    read: list[tuple[int, str]] = []

    @property
    def passed(self) -> bool:
        return not self.problems


class _Got(msgspec.Struct, frozen=True):
    """A packet that came out; `line` sent the one that caused it."""

    line: int
    packet: bytes


class Runner:
    """One run of one file on one switch, which has every port that a program may name.

    With `strict` a packet at a port that the file never names is a problem. p4c's own harness listens at the
    named ports only: `strict=False`.
    """

    def __init__(self, program: ir.Program, switch: Switch, *, strict: bool = True) -> None:
        self._program, self._switch, self._strict = program, switch, strict
        self._control = switch.control
        self._replication = Replication(switch.control)
        self._handles: dict[str, tuple[str, Matches, int]] = {}
        self._expected: dict[int, list[s.Expect]] = {}
        self._got: dict[int, list[_Got]] = {}
        self._now = 0.0
        self.report = Report()

    def run(self, statements: Iterable[s.Statement]) -> Report:
        """Runs all statements in order, then reports missing and unexpected packets. A refused statement is a
        problem, and the run continues.
        """
        listed = list(statements)
        for statement in listed:
            try:
                _STEPS[type(statement)](self, statement)
            except ResolveError as error:
                self._problem(statement.line, str(error), error.word)
            except (ControlError, ValueError) as error:
                self._problem(statement.line, str(error))
        self._finish({one.port for one in listed if isinstance(one, s.Packet | s.Expect)})
        self.report.problems.sort(key=lambda problem: problem.line)
        return self.report

    def _problem(self, line: int, message: str, word: str = "", detail: str = "") -> None:
        self.report.problems.append(Problem(line, message, word, detail))

    # --- packets

    def _packet(self, statement: s.Packet) -> None:
        self.report.packets_in += 1
        for out in self._switch.receive(statement.port, statement.data, self._now):
            self.report.packets_out += 1
            self._got.setdefault(out.port, []).append(_Got(statement.line, out.packet))

    def _expect(self, statement: s.Expect) -> None:
        self.report.expected += 1
        self._expected.setdefault(statement.port, []).append(statement)

    def _no_packet(self, statement: s.NoPacket) -> None:
        ports = self._got if statement.port is None else (statement.port,)
        for port in ports:
            expected = len(self._expected.get(port, ()))
            for got in self._got.get(port, [])[expected:]:
                self._problem(
                    statement.line,
                    f"no packet was expected at port {port}",
                    detail=f"line {got.line} made it send {got.packet.hex()}",
                )

    def _wait(self, statement: s.Wait) -> None:
        self._now += statement.seconds

    def _finish(self, ports: set[int]) -> None:
        for port in sorted(self._got.keys() | self._expected.keys()):
            got, expected = self._got.get(port, []), self._expected.get(port, [])
            if port not in ports and not self._strict:
                self.report.elsewhere += len(got)
                continue
            for wanted, came in zip(expected, got, strict=False):
                self._compare(wanted, came)
            for wanted in expected[len(got) :]:
                self._problem(wanted.line, f"no packet came out at port {port} for this line")
            for came in got[len(expected) :]:
                message = f"a packet that no line expects came out at port {port}"
                self._problem(came.line, message, detail=f"     got       {came.packet.hex(' ').upper()}")

    def _compare(self, wanted: s.Expect, came: _Got) -> None:
        wrong = difference(wanted.pattern, wanted.exact, came.packet)
        if wrong is None:
            self.report.met += 1
            return
        shown = side_by_side(wanted.pattern, wanted.exact, came.packet)
        message = f"the packet at port {wanted.port} differs, {wrong} (sent by line {came.line})"
        self._problem(wanted.line, message, detail=shown)

    # --- tables

    def _add(self, statement: s.Add) -> None:
        target = find_table(self._program, statement.table)
        matches, priority = target.matches(statement.matches), target.priority(statement.priority)
        entry = Entry(matches, target.call(statement.call), priority)
        self._control.table(target.table.name).insert(entry, self._now)
        if statement.handle is not None:
            self._handles[statement.handle] = (target.table.name, matches, priority)

    def _set_default(self, statement: s.SetDefault) -> None:
        target = find_table(self._program, statement.table)
        self._control.table(target.table.name).set_default(target.call(statement.call))

    def _remove(self, statement: s.Remove) -> None:
        if statement.handle is not None:
            table, matches, priority = self._handle(statement.handle)
            self._control.table(table).delete(matches, priority)
        elif statement.table is None:
            for one in self._program.tables:
                self._empty(one.name)
        elif not statement.matches:
            self._empty(find_table(self._program, statement.table).table.name)
        else:
            target = find_table(self._program, statement.table)
            matches = target.matches(statement.matches)
            self._control.table(target.table.name).delete(matches, target.priority(statement.priority))

    def _empty(self, table: str) -> None:
        for entry in list(self._control.table(table).entries()):
            if not entry.is_const:
                self._control.table(table).delete(entry.matches, entry.priority)

    def _handle(self, name: str) -> tuple[str, Matches, int]:
        found = self._handles.get(name) or self._handles.get(name.removeprefix("$"))
        if found is None:
            raise ResolveError(f"no entry was given the handle {name}", name)
        return found

    # --- counters, meters, registers

    def _check_counter(self, statement: s.CheckCounter) -> None:
        data = self._counted(statement.name, statement.index)
        if statement.operator is None:
            return
        number, unit = (data.bytes, "bytes") if statement.bytes else (data.packets, "packets")
        self._check(statement.line, f"{statement.name}({statement.index}) {unit}", number, statement)

    def _counted(self, name: str, index: int | str) -> CounterData:
        if isinstance(index, int):
            counter = find_extern(self._program, name, ("counter",))
            return self._control.counter(counter.name).read(index)
        table, matches, priority = self._handle(index)
        return self._control.table(table).counter(matches, priority)

    def _check(self, line: int, what: str, number: int, wanted: s.CheckCounter | s.CheckRegister) -> None:
        if not _COMPARE[wanted.operator or "=="](number, wanted.number):
            self._problem(line, f"{what} is {number}, not {wanted.operator} {wanted.number}")

    def _check_register(self, statement: s.CheckRegister) -> None:
        name = self._register(statement.name)
        number = self._control.register(name).read(statement.index)
        self._check(statement.line, f"{name}({statement.index})", number, statement)

    def _register(self, name: str) -> str:
        return find_extern(self._program, name, ("register",)).name

    def _read(self, line: int, text: str) -> None:
        self.report.read.append((line, text))

    def _counter_read(self, statement: s.CounterRead) -> None:
        data = self._counted(statement.name, statement.index)
        self._read(
            statement.line,
            f"{statement.name}[{statement.index}] packets {data.packets} bytes {data.bytes}",
        )

    def _counter_write(self, statement: s.CounterWrite) -> None:
        name = find_extern(self._program, statement.name, ("counter",)).name
        self._control.counter(name).write(statement.index, CounterData(statement.packets, statement.bytes))

    def _register_read(self, statement: s.RegisterRead) -> None:
        name = self._register(statement.name)
        self._read(
            statement.line, f"{name}[{statement.index}] {self._control.register(name).read(statement.index)}"
        )

    def _register_write(self, statement: s.RegisterWrite) -> None:
        self._control.register(self._register(statement.name)).write(statement.index, statement.value)

    def _register_reset(self, statement: s.RegisterReset) -> None:
        self._control.register(self._register(statement.name)).write(None, 0)

    def _meter(self, name: str) -> str:
        """Returns an indirect meter's name, or that of the table of a direct one."""
        meter = find_extern(self._program, name, ("meter", "direct_meter"))
        if meter.kind == "direct_meter":
            raise ResolveError(f"{meter.name} belongs to a table's entries; it has no index", name)
        return meter.name

    def _meter_read(self, statement: s.MeterRead) -> None:
        name = self._meter(statement.name)
        self._read(
            statement.line, f"{name}[{statement.index}] {self._control.meter(name).read(statement.index)}"
        )

    def _meter_write(self, statement: s.MeterWrite) -> None:
        if len(statement.rates) != 2:
            raise ResolveError(f"a meter has two rates, not {len(statement.rates)}")
        low, high = sorted(statement.rates, key=lambda rate: rate.rate)
        config = MeterConfig(_per_second(low), low.burst, _per_second(high), high.burst)
        self._control.meter(self._meter(statement.name)).write(statement.index, config)


def _per_second(rate: s.MeterRate) -> int:
    return round(rate.rate * _MICROSECOND)


_Step = Callable[[Runner, Any], None]
_STEPS: Final[dict[type[s.Statement], _Step]] = {
    s.Add: Runner._add,
    s.SetDefault: Runner._set_default,
    s.Remove: Runner._remove,
    s.Packet: Runner._packet,
    s.Expect: Runner._expect,
    s.NoPacket: Runner._no_packet,
    s.Wait: Runner._wait,
    s.CheckCounter: Runner._check_counter,
    s.CheckRegister: Runner._check_register,
    s.MirrorToPort: lambda run, one: run._replication.mirror_to_port(one.session, one.port),
    s.MirrorToGroup: lambda run, one: run._replication.mirror_to_group(one.session, one.group),
    s.MirrorDelete: lambda run, one: run._replication.delete_session(one.session),
    s.MirrorGet: lambda run, one: run._replication.check_session(one.session),
    s.GroupCreate: lambda run, one: run._replication.create_group(one.group),
    s.NodeCreate: lambda run, one: run._replication.create_node(one.rid, one.ports),
    s.NodeUpdate: lambda run, one: run._replication.update_node(one.node, one.ports),
    s.NodeAssociate: lambda run, one: run._replication.associate(one.group, one.node),
    s.CounterRead: Runner._counter_read,
    s.CounterWrite: Runner._counter_write,
    s.RegisterRead: Runner._register_read,
    s.RegisterWrite: Runner._register_write,
    s.RegisterReset: Runner._register_reset,
    s.MeterRead: Runner._meter_read,
    s.MeterWrite: Runner._meter_write,
}
