"""p4lang's `simple_switch` as the switch of a vector run: entries by its command line, packets over TAPs.

    with SimpleSwitch(tools, json, ports, folder) as switch:
        Runner(program, switch).run(statements)

It has the methods that `stf.runner.Runner` uses of our own `Switch` and its `Control`. TAPs and the Thrift
port belong to the calling process' network namespace, which should be a separate one.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    CloneSession,
    ControlError,
    CounterData,
    Entry,
    ExactMatch,
    LpmMatch,
    Match,
    Matches,
    MeterConfig,
    MulticastGroup,
    OptionalMatch,
    Out,
    RangeMatch,
    TernaryMatch,
)
from treecast.middleware.dataplane.p4.runtime.errors import Problem

THRIFT_PORT = 9090
START_SECONDS = 60.0
LONGEST_FRAME = 16_384
_SHORTEST_FRAME = 14  # a TAP accepts no frame without Ethernet's header
_PROMPT = "RuntimeCmd: "
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_HIGHEST = 1 << 24  # in bmv2 the lowest number wins, in the vectors the highest


class Bmv2Error(Exception):
    """The switch does not start, or has ended."""


@dataclass(frozen=True)
class Tools:
    """Paths of the switch and of its command line.

    `settle`: seconds without an output packet after which an input packet is done.
    """

    simple_switch: str
    cli: str
    settle: float = 0.15


# --- the command line's words


def match_word(match: Match | None, key: ir.Key) -> str:
    """Returns a key field in the syntax of `table_add`; None matches everything."""
    width = 32 if isinstance(key.type, ir.ErrorCode | ir.Enum) else ir.width_of(key.type)
    full = (1 << width) - 1
    match match:
        case ExactMatch(value):
            return f"{value:#x}"
        case LpmMatch(value, prefix):
            return f"{value:#x}/{prefix}"
        case TernaryMatch(value, mask):
            return f"{value:#x}&&&{mask:#x}"
        case OptionalMatch(value):  # p4c turns optional keys into ternary ones
            return f"{value:#x}&&&{full:#x}"
        case RangeMatch(low, high):
            return f"{low:#x}->{high:#x}"
    kind = key.match_kind
    return {ir.MatchKind.LPM: "0x0/0", ir.MatchKind.RANGE: f"0x0->{full:#x}"}.get(kind, "0x0&&&0x0")


def add_command(program: ir.Program, table: ir.Table, entry: Entry) -> str:
    """Returns the `table_add` command of an entry."""
    keys = [key for key in table.keys if key.match_kind is not ir.MatchKind.SELECTOR]
    words = [match_word(entry.matches.get(key.name), key) for key in keys]
    if not isinstance(entry.action, ActionCall):
        raise ControlError(
            Problem.INVALID, "the adapter writes only actions into bmv2, not members or groups"
        )
    action, *arguments = call_words(program, entry.action)
    words = ["table_add", table.name, action, *words, "=>", *arguments]
    if any(key.match_kind not in (ir.MatchKind.EXACT, ir.MatchKind.LPM) for key in keys):
        words.append(str(_HIGHEST - entry.priority))
    return " ".join(words)


def call_words(program: ir.Program, call: ActionCall) -> list[str]:
    """Returns an action and its arguments in the order of its parameters."""
    action = next(one for one in program.actions if one.name == call.action)
    return [call.action, *(f"{call.arguments[one.name]:#x}" for one in action.data)]


class CommandLine:
    """A running `simple_switch_CLI`."""

    def __init__(self, path: str) -> None:
        command = [path, "--thrift-port", str(THRIFT_PORT)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        self._until_prompt()

    def _until_prompt(self) -> str:
        assert self._process.stdout is not None
        found = b""
        while not found.endswith(_PROMPT.encode()):
            if not select.select([self._process.stdout], [], [], START_SECONDS)[0]:
                raise Bmv2Error(f"the command line hangs after {found[-300:]!r}")
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                raise Bmv2Error(f"the command line has ended: {found.decode(errors='replace')[-600:]}")
            found += more
        return found.decode().removesuffix(_PROMPT)

    def do(self, command: str) -> str:
        """Returns the output of a command; raises ControlError if it is an error."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        answer = self._until_prompt()
        if re.search(r"^(Error|Invalid|Unknown|\*\*\* Unknown)|has no action|needs \d+ ", answer, re.M):
            raise ControlError(Problem.INVALID, f"{command}: {answer.strip()}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Bmv2Control:
    """The control plane that `Runner` uses."""

    def __init__(self, program: ir.Program, line: CommandLine) -> None:
        self.replication = Bmv2Replication(line)
        self._tables = {table.name: Bmv2Table(program, table, line) for table in program.tables}
        self._line = line

    def table(self, name: str) -> Bmv2Table:
        return self._tables[name]

    def counter(self, name: str) -> Bmv2Counter:
        return Bmv2Counter(name, self._line)

    def meter(self, name: str) -> Bmv2Meter:
        return Bmv2Meter(name, self._line)

    def register(self, name: str) -> Bmv2Register:
        return Bmv2Register(name, self._line)


class Bmv2Table:
    def __init__(self, program: ir.Program, table: ir.Table, line: CommandLine) -> None:
        self._program = program
        self._table = table
        self._line = line
        self._handles: dict[str, str] = {}  # by identity of the entry

    def insert(self, entry: Entry, now: float = 0.0) -> None:
        answer = self._line.do(add_command(self._program, self._table, entry))
        handle = re.search(r"handle (\d+)", answer)
        if handle is None:
            raise ControlError(Problem.INVALID, answer.strip())
        self._handles[_identity(entry.matches, entry.priority)] = handle[1]

    def delete(self, matches: Matches, priority: int = 0) -> None:
        handle = self._handles.pop(_identity(matches, priority))
        self._line.do(f"table_delete {self._table.name} {handle}")

    def entries(self) -> Iterator[Entry]:
        """Yields nothing: here `table_clear` empties a table."""
        self._line.do(f"table_clear {self._table.name}")
        return iter(())

    def set_default(self, action: ActionCall) -> None:
        self._line.do(" ".join(["table_set_default", self._table.name, *call_words(self._program, action)]))

    def counter(self, matches: Matches, priority: int = 0) -> CounterData:
        handle = self._handles[_identity(matches, priority)]
        raise ControlError(
            Problem.INVALID,
            f"direct counters of {self._table.name} (entry {handle}) have no name in the adapter",
        )


class Bmv2Cells:
    """A counter, meter or register by index."""

    def __init__(self, name: str, line: CommandLine) -> None:
        self._name = name
        self._line = line

    def _number(self, command: str, pattern: str) -> re.Match[str]:
        found = re.search(pattern, answer := self._line.do(command))
        if found is None:
            raise ControlError(Problem.INVALID, answer.strip())
        return found


class Bmv2Counter(Bmv2Cells):
    def read(self, index: int) -> CounterData:
        found = self._number(f"counter_read {self._name} {index}", r"\((\d+) bytes, (\d+) packets\)")
        return CounterData(int(found[2]), int(found[1]))

    def write(self, index: int, data: CounterData) -> None:
        self._line.do(f"counter_write {self._name} {index} {data.packets} {data.bytes}")


class Bmv2Meter(Bmv2Cells):
    def read(self, index: int) -> str:
        return self._line.do(f"meter_get_rates {self._name} {index}").strip()

    def write(self, index: int | None, config: MeterConfig) -> None:
        rates = f"{config.cir / 1e6}:{config.cburst} {config.pir / 1e6}:{config.pburst}"
        one = "meter_array_set_rates" if index is None else "meter_set_rates"
        self._line.do(" ".join([one, self._name, *([] if index is None else [str(index)]), rates]))


class Bmv2Register(Bmv2Cells):
    def read(self, index: int) -> int:
        return int(self._number(f"register_read {self._name} {index}", r"= (\d+)")[1])

    def write(self, index: int | None, value: int) -> None:
        name = self._name
        self._line.do(f"register_reset {name}" if index is None else f"register_write {name} {index} {value}")


class Bmv2Replication:
    """Multicast groups and clone sessions."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._nodes: dict[int, list[int]] = {}  # by group
        self._sessions: dict[int, CloneSession] = {}

    def insert_group(self, group: MulticastGroup) -> None:
        self._line.do(f"mc_mgrp_create {group.group}")
        self._nodes[group.group] = []
        self.modify_group(group)

    def modify_group(self, group: MulticastGroup) -> None:
        """Makes a node for each replication id; earlier nodes are removed."""
        for node in self._nodes[group.group]:
            self._line.do(f"mc_node_dissociate {group.group} {node}")
            self._line.do(f"mc_node_destroy {node}")
        by_rid: dict[int, list[int]] = {}
        for replica in group.replicas:
            by_rid.setdefault(replica.instance, []).append(replica.port)
        self._nodes[group.group] = [self._node(group.group, rid, ports) for rid, ports in by_rid.items()]

    def _node(self, group: int, rid: int, ports: Sequence[int]) -> int:
        answer = self._line.do(f"mc_node_create {rid} {' '.join(map(str, ports))}")
        handle = re.search(r"with handle (\d+)", answer)
        if handle is None:
            raise ControlError(Problem.INVALID, answer.strip())
        self._line.do(f"mc_node_associate {group} {handle[1]}")
        return int(handle[1])

    def sessions(self) -> list[CloneSession]:
        return list(self._sessions.values())

    def insert_session(self, session: CloneSession) -> None:
        if len(session.replicas) != 1:
            raise ControlError(Problem.INVALID, "the adapter does not write mirroring to groups into bmv2")
        self._line.do(f"mirroring_add {session.session} {session.replicas[0].port}")
        self._sessions[session.session] = session

    def modify_session(self, session: CloneSession) -> None:
        self.delete_session(session.session)
        self.insert_session(session)

    def delete_session(self, session: int) -> None:
        self._line.do(f"mirroring_delete {session}")
        del self._sessions[session]


def _identity(matches: Matches, priority: int) -> str:
    return f"{priority} {sorted(matches.items(), key=lambda item: item[0])}"


# --- the switch


class SimpleSwitch:
    """The process and its ports. Raises Bmv2Error if it does not start."""

    def __init__(
        self, tools: Tools, program: ir.Program, json: Path, ports: Sequence[int], folder: Path
    ) -> None:
        self._tools, self._program, self._json = tools, program, json
        self._ports, self._folder = sorted(set(ports)), folder
        self._taps: dict[int, int] = {}
        self.not_sent = 0  # packets that Ethernet cannot carry, so a real switch never sees them
        self.control: Bmv2Control

    def __enter__(self) -> SimpleSwitch:
        self._taps = {port: open_tap(f"p{port}") for port in self._ports}
        self._by_file = {file: port for port, file in self._taps.items()}
        interfaces = [word for port in self._ports for word in ("-i", f"{port}@p{port}")]
        log = (self._folder / f"{self._json.stem}.log").open("wb")
        command = [self._tools.simple_switch, *interfaces, "--thrift-port", str(THRIFT_PORT), str(self._json)]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            self._line = self._connect()
        except BaseException:
            self._process.kill()
            raise
        self.control = Bmv2Control(self._program, self._line)
        return self

    def _connect(self) -> CommandLine:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise Bmv2Error(f"simple_switch has ended with {self._process.returncode}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", THRIFT_PORT)) == 0:
                    return CommandLine(self._tools.cli)
            time.sleep(0.1)
        raise Bmv2Error("simple_switch does not listen")

    def receive(self, port: int, packet: bytes, now: float) -> list[Out]:
        """Returns the packets that come out until none has for `settle` seconds, after any late earlier
        ones."""
        late = self._drain(0.0)
        if len(packet) < _SHORTEST_FRAME:
            self.not_sent += 1
            return late
        os.write(self._taps[port], packet)
        return late + self._drain(self._tools.settle)

    def _drain(self, settle: float) -> list[Out]:
        found = []
        while ready := select.select(list(self._by_file), [], [], settle)[0]:
            found += [Out(self._by_file[file], os.read(file, LONGEST_FRAME)) for file in ready]
        return found

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.terminate()
        self._process.wait()
        for tap in self._taps.values():
            os.close(tap)


def open_tap(name: str) -> int:
    """Opens a TAP device that is up and sends nothing by itself. Raises OSError."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    quiet = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    if quiet.exists():
        quiet.write_text("1")
    subprocess.run(["ip", "link", "set", name, "up", "mtu", "9000"], check=True)
    return tap
