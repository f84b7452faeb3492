"""The state of one running program: its tables, externs, replication, digests, counts. No packet logic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from .. import ir
from ..bits import Generator
from ..source import Span
from .arrays import CounterArray, MeterArray, RegisterArray
from .counts import Counts, PortCount
from .digests import DigestQueue
from .profiles import Profile
from .replication import Replication
from .tables import TableState
from .value_sets import ValueSetState

# standard_metadata.instance_type, as the behavioral model has it.
NORMAL = 0
INGRESS_CLONE = 1
EGRESS_CLONE = 2
RECIRC = 4
REPLICATION = 5
RESUBMIT = 6


MAX_LOG = 1000  # lines that are kept
MAX_WORK = 1024  # passes that one packet may cause: recirculations, resubmissions, clones in egress
MAX_STATES = 4096  # parser states that one packet may go through, then error.ParserTimeout
MAX_ROUNDS = 65536  # of one loop

Extern = CounterArray | MeterArray | RegisterArray | Profile | None


class Machine:
    """Tables, externs and value sets by their index in the program."""

    def __init__(self, program: ir.Program, ports: Iterable[int], seed: int, start: float) -> None:
        self.program = program
        self.start = start
        self.drop_port = 511
        self.random = Generator(seed)
        self.counts = Counts()
        self.replication = Replication()
        self.ports = {port: PortCount() for port in ports}
        self.log: deque[str] = deque(maxlen=MAX_LOG)
        self.externs: list[Extern] = [_extern(one) for one in program.externs]
        self.tables = [TableState(program, table, self._profile(table)) for table in program.tables]
        self.value_sets = [ValueSetState(one) for one in program.value_sets]
        self.digests = {name: DigestQueue(name) for name in digest_names(program)}

    def profile(self, index: int) -> Profile:
        """Returns the action profile or selector with this index."""
        found = self.externs[index]
        assert isinstance(found, Profile)
        return found

    def microseconds(self, now: float) -> int:
        """Returns the program's clock."""
        return max(0, int((now - self.start) * 1_000_000)) & 0xFFFFFFFFFFFF

    def digest(self, name: str, values: tuple[int, ...], now: float) -> None:
        """Adds a program's digest."""
        self.counts.digests += 1
        self.digests[name].add(values, now)

    def _profile(self, table: ir.Table) -> Profile | None:
        return None if table.implementation is None else self.profile(table.implementation)


def _extern(one: ir.ExternInstance) -> Extern:
    if one.kind == "counter":
        return CounterArray(one.name, _size(one))
    if one.kind == "meter":
        return MeterArray(one.name, _size(one), one.argument("type") == "bytes")
    if one.kind == "register":
        cell = one.type_arguments[0]
        signed = isinstance(cell, ir.Bits) and cell.signed
        return RegisterArray(one.name, _size(one), ir.width_of(cell), signed)
    if one.kind in ("action_profile", "action_selector"):
        return Profile(one.name, _size(one), one.kind == "action_selector")
    return None


def _size(one: ir.ExternInstance) -> int:
    return int(one.argument("size"))


def is_standard(type_: ir.Type) -> bool:
    """Returns whether it is v1model's standard metadata."""
    return isinstance(type_, ir.StructType) and type_.name == "standard_metadata_t"


# --- digests


def digest_name(call: ir.ExternCall) -> str:
    """Returns the name of a digest: that of its struct."""
    data = call.type_arguments[0]
    return data.name if isinstance(data, ir.StructType) else "digest"


def digest_names(program: ir.Program) -> list[str]:
    """Returns all that the program can send."""
    return sorted({digest_name(call) for call in extern_calls(program) if call.name == "digest"})


_walked: list[
    tuple[ir.Program, tuple[ir.ExternCall, ...]]
] = []  # the newest programs; not hashed, so no cache
_MOST_WALKED = 4


def extern_calls(program: ir.Program) -> tuple[ir.ExternCall, ...]:
    """Returns every extern call of the program. Cached, because dozens of switches may share one program."""
    for known, calls in _walked:
        if known is program:
            return calls
    bodies = (program.functions, program.actions, program.tables, program.controls, program.parsers)
    found = tuple(node for node in walk(bodies) if isinstance(node, ir.ExternCall))
    _walked[:] = [*_walked[1 - _MOST_WALKED :], (program, found)]
    return found


def walk(value: object) -> Iterator[msgspec.Struct]:
    """Yields every node of a piece of a program, types and places left out."""
    waiting: list[object] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(one)
        elif isinstance(one, msgspec.Struct) and not isinstance(one, SKIPPED):
            yield one
            waiting.extend(getattr(one, name) for name in one.__struct_fields__)


SKIPPED = (
    Span,
    ir.Annotation,
    ir.StructType,
    ir.HeaderType,
    ir.UnionType,
    ir.StackType,
    ir.TupleType,
    ir.Enum,
)
