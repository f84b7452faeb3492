"""The v1model pipeline: parser, verify, ingress, the crossing, egress, compute, deparser.

The ends of ingress and egress follow the behavioral model's simple_switch.md, in its order: clone, digest
(here sent at once), resubmit, multicast, drop, unicast; and clone, drop, recirculate, send.
"""

from __future__ import annotations

from collections import deque

from .. import ir
from ..runtime.counts import (
    DROP_EGRESS,
    DROP_EMPTY_GROUP,
    DROP_INGRESS,
    DROP_NO_GROUP,
    DROP_NO_PORT,
    DROP_WORK,
)
from ..runtime.machine import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    MAX_WORK,
    NORMAL,
    RECIRC,
    REPLICATION,
    RESUBMIT,
    Machine,
)
from ..runtime.values import Out
from .context import Context
from .expressions import Expressions
from .externs import Externs
from .meta import Standard, preserve
from .packets import Bits
from .parsing import Parsing
from .signals import DropSignal, ExitSignal, ReturnSignal
from .statements import Statements
from .values import Value, copy, default, header_bits


class Arrival:
    """A packet that waits for parser and ingress."""

    __slots__ = ("data", "kind", "port", "user")

    def __init__(self, data: bytes, port: int, kind: int, user: list[Value] | None) -> None:
        self.data = data
        self.port = port
        self.kind = kind
        self.user = user  # user metadata that came along


class Trunk:
    """The common start of all copies of one packet. `state` is headers, user metadata, standard metadata;
    `rest` the bit at which the payload begins; `length` the packet's bytes with its present headers.
    """

    __slots__ = ("arrival", "cut", "length", "rest", "state")

    def __init__(self, arrival: Arrival, state: list[Value], rest: int, length: int, cut: int | None) -> None:
        self.arrival = arrival
        self.state = state
        self.rest = rest
        self.length = length
        self.cut = cut  # truncate


class Copy:
    """A packet that waits for egress, with everything that goes with it."""

    __slots__ = ("kind", "port", "rid", "state", "trunk")

    def __init__(self, trunk: Trunk, port: int, rid: int, kind: int) -> None:
        self.trunk = trunk
        self.port = port
        self.rid = rid
        self.kind = kind
        self.state = [copy(value) for value in trunk.state]


class Interpreter:
    """Runs packets through a program, one after the other."""

    def __init__(self, machine: Machine) -> None:
        context = self._context = Context(machine)
        expressions = Expressions(context)
        self._statements = Statements(context, expressions)
        Externs(context, expressions)
        self._parsing = Parsing(context, expressions, self._statements)
        self.standard = Standard(self._context.program)
        self._arrivals: deque[Arrival] = deque()
        self._copies: deque[Copy] = deque()
        self._work = 0
        ingress = self._context.program.controls[self._context.program.pipeline.ingress]
        self._types = [one.type for one in ingress.parameters]

    def receive(self, port: int, data: bytes, now: float, out: list[Out]) -> None:
        """Processes one packet and everything that it causes, in order."""
        self._work = 1
        self._ingress(Arrival(data, port, NORMAL, None), now)
        while self._arrivals or self._copies:
            if self._copies:
                self._egress(self._copies.popleft(), now, out)
                continue
            arrival = self._arrivals.popleft()
            if self._work_left():
                self._ingress(arrival, now)

    def _work_left(self) -> bool:
        """Returns whether one packet may cause another pass; if not that is a drop."""
        self._work += 1
        if self._work > MAX_WORK:
            self._context.machine.counts.drop(DROP_WORK)
            return False
        return True

    # --- ingress

    def _ingress(self, arrival: Arrival, now: float) -> None:
        self._context.machine.counts.ingress_passes += 1
        try:
            state = self._parsed(arrival, now)
            self._block(self._context.program.pipeline.ingress, state)
            self._after_ingress(arrival, state)
        except DropSignal as signal:
            self._context.machine.counts.drop(signal.reason)

    def _parsed(self, arrival: Arrival, now: float) -> list[Value]:
        """Headers, user metadata and standard metadata after parser and verify."""
        self._context.begin(arrival.data, now)
        state = [default(type_) for type_ in self._types]
        if arrival.user is not None:
            state[1] = copy(arrival.user)
        self._arrive(state[2], arrival, now)
        parser = self._context.program.parsers[self._context.program.pipeline.parser]
        self._bind(parser.parameters, state)
        error = self._parsing.parse(self._context.program.pipeline.parser)
        state[:] = [self._context.variable(one.variable) for one in parser.parameters]
        if error:
            self._context.machine.counts.parser_error(error)
        self.standard.put_whole(state[2], "parser_error", error)
        self._block(self._context.program.pipeline.verify, state)
        self.standard.put(state[2], "checksum_error", int(self._context.checksum_error))
        self._parsed_bits = valid_bits(state[0], self._types[0])
        return state

    def _arrive(self, meta: list[Value], arrival: Arrival, now: float) -> None:
        self.standard.put(meta, "ingress_port", arrival.port)
        self.standard.put(meta, "instance_type", arrival.kind)
        self.standard.put(meta, "packet_length", len(arrival.data))
        self.standard.put(meta, "ingress_global_timestamp", self._context.machine.microseconds(now))

    def _after_ingress(self, arrival: Arrival, state: list[Value]) -> None:
        counts, standard = self._context.machine.counts, self.standard
        clone, resubmit = self._context.clone, self._context.resubmit
        trunk = Trunk(
            arrival,
            state,
            self._context.cursor.at,
            self._length_now(state[0], self._context.length),
            self._context.truncate,
        )
        if clone is not None:
            self._clone_ingress(arrival, clone, state[1])
        group, spec = standard.get(state[2], "mcast_grp"), standard.get(state[2], "egress_spec")
        if resubmit is not None:
            counts.resubmissions += 1
            self._arrive_again(arrival.data, arrival.port, RESUBMIT, resubmit, state[1])
        elif group:
            self._multicast(group, trunk)
        elif spec == self._context.drop_port:
            counts.drop(DROP_INGRESS)
        else:
            self._copies.append(Copy(trunk, spec, 0, NORMAL))

    def _arrive_again(self, data: bytes, port: int, kind: int, fields: int, user: list[Value]) -> None:
        self._arrivals.append(Arrival(data, port, kind, self._kept(fields, user)))

    def _kept(self, fields: int, user: list[Value]) -> list[Value]:
        """Returns user metadata of which only a field list is preserved."""
        kept: list[Value] = default(self._types[1])
        preserve(self._context.program, fields, user, kept)
        return kept

    def _length_now(self, headers: Value, before: int) -> int:
        """Bytes of the packet with the headers that are valid now."""
        return before + (valid_bits(headers, self._types[0]) - self._parsed_bits) // 8

    def _multicast(self, group: int, trunk: Trunk) -> None:
        replicas = self._context.machine.replication.copies.get(group)
        if not replicas:
            self._context.machine.counts.drop(DROP_NO_GROUP if replicas is None else DROP_EMPTY_GROUP)
            return
        self._context.machine.counts.replicas += len(replicas)
        self._copies.extend(Copy(trunk, port, rid, REPLICATION) for port, rid in replicas)

    def _clone_ingress(self, arrival: Arrival, clone: tuple[int, int], user: list[Value]) -> None:
        """Schedules the packet as it arrived, parsed again, with the metadata of the field list."""
        replicas = self._context.machine.replication.clones.get(clone[0])
        if not replicas:
            return
        again = Arrival(arrival.data, arrival.port, INGRESS_CLONE, None)
        headers = self._parsed(again, self._context.now)[0]
        state = [headers, self._kept(clone[1], user), self._fresh(again)]
        cut = self._context.machine.replication.packet_length(clone[0]) or None
        self._clones(replicas, Trunk(again, state, self._context.cursor.at, self._context.length, cut))

    def _clones(self, replicas: tuple[tuple[int, int], ...], trunk: Trunk) -> None:
        self._context.machine.counts.clones += len(replicas)
        self._copies.extend(Copy(trunk, port, rid, trunk.arrival.kind) for port, rid in replicas)

    def _fresh(self, arrival: Arrival) -> list[Value]:
        meta: list[Value] = default(self._types[2])
        self._arrive(meta, arrival, self._context.now)
        return meta

    # --- egress

    def _egress(self, one: Copy, now: float, out: list[Out]) -> None:
        self._context.machine.counts.egress_passes += 1
        trunk = one.trunk
        self._context.begin(trunk.arrival.data, now)
        self._context.cursor.at = trunk.rest
        self._context.truncate = trunk.cut
        self._enter_egress(one, one.state[2])
        self._parsed_bits = valid_bits(one.state[0], self._types[0])
        try:
            self._block(self._context.program.pipeline.egress, one.state)
            self._after_egress(one, out)
        except DropSignal as signal:
            self._context.machine.counts.drop(signal.reason)

    def _enter_egress(self, one: Copy, meta: list[Value]) -> None:
        standard, at = self.standard, self._context.machine.microseconds(self._context.now)
        standard.put(meta, "egress_port", one.port)
        standard.put(meta, "egress_rid", one.rid)
        standard.put(meta, "instance_type", one.kind)
        standard.put(meta, "egress_spec", self._context.drop_port + 1)
        standard.put(meta, "packet_length", one.trunk.length)
        standard.put(meta, "egress_global_timestamp", at)
        standard.put(meta, "enq_timestamp", at)

    def _after_egress(self, one: Copy, out: list[Out]) -> None:
        if self._context.clone is not None:
            self._clone_egress(one, self._context.clone)
        if self.standard.get(one.state[2], "egress_spec") == self._context.drop_port:
            self._context.machine.counts.drop(DROP_EGRESS)
            return
        recirculate = self._context.recirculate
        data = self._deparsed(one.state)
        if recirculate is None:
            send(self._context.machine, one.port, data, out)
            return
        self._context.machine.counts.recirculations += 1
        self._arrive_again(data, one.trunk.arrival.port, RECIRC, recirculate, one.state[1])

    def _clone_egress(self, one: Copy, clone: tuple[int, int]) -> None:
        """Schedules the packet as it is at the end of egress, not deparsed."""
        replicas = self._context.machine.replication.clones.get(clone[0])
        if not replicas or not self._work_left():
            return
        trunk = one.trunk
        again = Arrival(trunk.arrival.data, trunk.arrival.port, EGRESS_CLONE, None)
        state = [one.state[0], self._kept(clone[1], one.state[1]), self._fresh(again)]
        cut = self._context.machine.replication.packet_length(clone[0]) or None
        length = self._length_now(one.state[0], trunk.length)
        self._clones(replicas, Trunk(again, state, trunk.rest, length, cut))

    def _deparsed(self, state: list[Value]) -> bytes:
        self._block(self._context.program.pipeline.compute, state)
        self._context.out = Bits()
        self._block(self._context.program.pipeline.deparser, state)
        self._context.out.add(*self._context.cursor.rest())
        data = self._context.out.bytes()
        return data if self._context.truncate is None else data[: self._context.truncate]

    # --- blocks

    def _block(self, number: int, state: list[Value]) -> None:
        """Runs a control over as much of (headers, metadata, standard metadata) as it has parameters."""
        control = self._context.program.controls[number]
        self._bind(control.parameters, state)
        try:
            self._statements.run(control.body)
        except (ExitSignal, ReturnSignal):
            pass
        for place, parameter in enumerate(control.parameters):
            if parameter.direction in (ir.Direction.OUT, ir.Direction.INOUT):
                state[place] = self._context.variables[parameter.variable]

    def _bind(self, parameters: tuple[ir.Parameter, ...], state: list[Value]) -> None:
        for parameter, value in zip(parameters, state, strict=False):
            self._context.variables[parameter.variable] = value


def valid_bits(value: Value, type_: ir.Type) -> int:
    """Bits of all valid headers in a value."""
    match type_:
        case ir.HeaderType():
            return header_bits(value, type_) if value.valid else 0
        case ir.StackType(element=element):
            return sum(valid_bits(one, element) for one in value.items)
        case ir.UnionType(fields=fields):
            return sum(valid_bits(one, f.type) for one, f in zip(value.items, fields, strict=True))
        case ir.StructType(fields=fields):
            return sum(valid_bits(one, f.type) for one, f in zip(value, fields, strict=True))
    return 0


def send(machine: Machine, port: int, packet: bytes, out: list[Out]) -> None:
    """Counts and appends a packet; drops one for a missing port."""
    count = machine.ports.get(port)
    if count is None:
        machine.counts.drop(DROP_NO_PORT)
        return
    count.packets_out += 1
    count.bytes_out += len(packet)
    out.append(Out(port, packet))
