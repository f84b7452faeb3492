"""Combines several traces of the same action into one way. Pure.

A trace is a list of entries in the order in which they happened on one host. A message's own functions are in
every trace; timers and other activities are in some. So a function belongs to the way if it is in all traces,
with the least number of calls in any of them. Functions of some traces only are listed apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct


class Entry(Struct, frozen=True, array_like=True):
    """The start of a function, or a write to a socket. `at` in nanoseconds of the monotonic clock, which all
    processes share."""

    file: str  # from the repository's root
    function: str
    at: int
    writes: bool = False


class Function(Struct, frozen=True):
    name: str
    calls: int


class File(Struct, frozen=True):
    """The functions of a file that one host entered, in the order of their first call."""

    path: str
    calls: int
    functions: tuple[Function, ...]


class HostWay(Struct, frozen=True):
    """The functions of one host. `sometimes`: functions of some traces only, with the number of these
    traces."""

    host: str
    files: tuple[File, ...]
    sometimes: dict[str, int]

    @property
    def calls(self) -> int:
        return sum(file.calls for file in self.files)


class Way(Struct, frozen=True):
    """`quiet`: functions entered in every window without a message; they would be noise."""

    message: str
    traces: int
    hosts: tuple[HostWay, ...]
    quiet: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Returns each file once, however many hosts enter it."""
        return tuple(dict.fromkeys(file.path for host in self.hosts for file in host.files))

    @property
    def calls(self) -> int:
        return sum(host.calls for host in self.hosts)


Trace = Sequence[Entry]


def until_written(trace: Trace, room: str, done: int) -> list[Entry]:
    """Returns the entries up to the last write of a room (a path prefix) before `done`; all entries before
    `done` if there was no such write."""
    writes = [
        entry.at for entry in trace if entry.writes and entry.file.startswith(room) and entry.at <= done
    ]
    end = max(writes, default=done)
    return [entry for entry in trace if not entry.writes and entry.at <= end]


def host_way(host: str, traces: Sequence[Trace]) -> HostWay:
    """Returns what all traces have in common, files in the order of their first entry in the shortest trace.

    A timer may come before the message in a longer one, and enter functions that the message enters later.
    """
    counted = [Counter((entry.file, entry.function) for entry in trace) for trace in traces]
    shortest = min(counted, key=Counter.total, default=Counter())
    always = {key: min(count[key] for count in counted) for key in shortest}
    order = [key for key in always if always[key]]
    by_file: dict[str, list[Function]] = {}
    for path, name in order:
        by_file.setdefault(path, []).append(Function(name, always[path, name]))
    files = tuple(File(path, sum(f.calls for f in found), tuple(found)) for path, found in by_file.items())
    seen = Counter(key for count in counted for key in count)
    sometimes = {f"{path}:{name}": n for (path, name), n in sorted(seen.items()) if n < len(traces)}
    return HostWay(host, files, sometimes)


def in_every(traces: Sequence[Trace]) -> tuple[str, ...]:
    """Returns the functions of all traces."""
    return tuple(f"{f.path}:{g.name}" for f in host_way("", traces).files for g in f.functions)


def as_rows(way: Way) -> dict[str, Any]:
    """Returns rows for JSON: totals first."""
    return {
        "message": way.message,
        "traces": way.traces,
        "files": len(way.files),
        "calls": way.calls,
        "quiet": way.quiet,
        "hosts": [
            {"host": host.host, "files": len(host.files), "calls": host.calls}
            | {"way": host.files, "sometimes": host.sometimes}
            for host in way.hosts
        ],
    }


def as_text(way: Way) -> str:
    """Returns text for people: a line per file, with its functions."""
    lines = [f"{way.message}: {len(way.files)} files, {way.calls} calls (in each of {way.traces} traces)"]
    for host in way.hosts:
        lines.append(f"\n  host {host.host}: {len(host.files)} files, {host.calls} calls")
        width = max((len(file.path) for file in host.files), default=0)
        lines += [f"    {file.path:{width}} {file.calls:4}  {_functions(file)}" for file in host.files]
        if host.sometimes:
            shown = ", ".join(f"{name} ({count})" for name, count in host.sometimes.items())
            lines.append(f"    in some traces only, not counted: {shown}")
    lines.append(f"\n  in every quiet window as well: {', '.join(way.quiet) or 'nothing'}")
    return "\n".join(lines)


def _functions(file: File) -> str:
    return ", ".join(f.name if f.calls == 1 else f"{f.name} {f.calls}" for f in file.functions)
