"""Bad AMQP frames at our daemon and at the system's RabbitMQ: what a client sees of each is compared.

    python -m tests.foreign.amqp_frames [-k TEXT] [--amqp HOST:PORT] [--rabbitmq HOST:PORT] [--json]

The frames are those of `tests/fault/amqp_bad_frames.py`. What a client sees is the first Channel.Close or
Connection.Close with its channel, reply code and method, or else the end of the connection, or nothing.
Reply texts are shown by --json, and not compared.

Exit code 0: exactly the cases on the allow list (`amqp_frames.toml`) differ, with the answers that it states.
2: RabbitMQ is not installed, or no case is selected.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.peers.rabbitmq.node import missing
from pamqp import commands
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from tests.fault.amqp_bad_frames import CASES, begin
from tests.fault.amqp_wire import (
    PROTOCOL_HEADER,
    Channel,
    Connection,
    Wire,
    method,
)

from .pika_suite import FACES, given, rabbitmq, treecast

ALLOW_LIST = Path(__file__).resolve().with_name("amqp_frames.toml")
PROBE = 9  # a channel that is opened after the bad bytes
ANSWER_S = 30.0  # for the first answer: RabbitMQ waits 3 s before some of its errors
QUIET_S = 3.0  # for an error after the probe's answer: RabbitMQ's channels answer independently of each other
ENDS = "the connection ends"
GOES_ON = "goes on"
SILENT = "no answer"


@dataclass(frozen=True)
class Answer:
    """The answer of a server. `seen` is compared, `text` is not."""

    seen: str
    text: str = ""


@dataclass(frozen=True)
class Compared:
    """A case with the answers of both."""

    case: str
    treecast: Answer
    rabbitmq: Answer

    @property
    def differs(self) -> bool:
        return self.treecast.seen != self.rabbitmq.seen


@dataclass(frozen=True)
class Difference:
    """An entry of the allow list: both answers, and why they differ."""

    case: str
    treecast: str
    rabbitmq: str
    reason: str

    def allows(self, one: Compared) -> bool:
        return (self.treecast, self.rabbitmq) == (one.treecast.seen, one.rabbitmq.seen)


def differences(path: Path = ALLOW_LIST) -> list[Difference]:
    """Reads the allow list. Raises ValueError for a case that it names twice."""
    listed = [Difference(**entry) for entry in tomllib.loads(path.read_text())["difference"]]
    names = [entry.case for entry in listed]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name} names a case twice: {', '.join(sorted(twice))}")
    return listed


def news(found: Iterable[Compared], listed: Iterable[Difference]) -> list[str]:
    """Returns what the allow list does not say, and what it says although it does not hold."""
    entries = {entry.case: entry for entry in listed}
    lines = [line for one in found if (line := _news_of(one, entries.pop(one.case, None)))]
    return [*lines, *(f"on the allow list, but not a case: {case}" for case in entries)]


def _news_of(one: Compared, entry: Difference | None) -> str:
    if entry is None:
        return f"differs: {_both(one)}" if one.differs else ""
    if not one.differs:
        return f"no longer differs, take it off the allow list: {one.case}: {one.treecast.seen}"
    if entry.allows(one):
        return ""
    return f"differs otherwise than the allow list says: {_both(one)}"


def _both(one: Compared) -> str:
    return f"{one.case}: Treecast: {one.treecast.seen}; RabbitMQ: {one.rabbitmq.seen}"


def closed(channel: int, close: Channel.Close | Connection.Close) -> Answer:
    """Returns the answer that a close is, such as `channel 1: 404 Basic.Publish`."""
    index = close.class_id << 16 | close.method_id
    known = commands.INDEX_MAPPING.get(index)
    of = known.name if known else f"{close.class_id}.{close.method_id}" if index else "no method"
    place = f"channel {channel}" if isinstance(close, Channel.Close) else "connection"
    return Answer(f"{place}: {close.reply_code} {of}", close.reply_text)


def answer_to(wire: Wire, data: bytes, *, answer_s: float = ANSWER_S, quiet_s: float = QUIET_S) -> Answer:
    """Sends the bytes and then opens a channel; returns what the server makes of the bytes.

    A connection goes on if the channel opens and no close comes within `quiet_s` after it.
    """
    wire.socket.settimeout(answer_s)
    with contextlib.suppress(ConnectionError):  # the server may have said why before it closed
        wire.send(data + method(Channel.Open(), PROBE))
    opened = False
    try:
        while True:
            channel, one = wire.read()
            if isinstance(one, Channel.Close | Connection.Close):
                return closed(channel, one)
            if isinstance(one, Channel.OpenOk) and channel == PROBE:
                opened = True
                wire.socket.settimeout(quiet_s)
    except TimeoutError:
        return Answer(GOES_ON if opened else SILENT)
    except (EOFError, ConnectionError):
        return Answer(ENDS)


def answers(
    address: tuple[str, int], cases: Mapping[str, bytes], done: Callable[[], None]
) -> dict[str, Answer]:
    """Sends each case on a connection of its own."""
    found = {}
    for name, data in cases.items():
        wire = begin(address)
        found[name] = answer_to(wire, data)
        wire.close()
        done()
    return found


def version(address: tuple[str, int]) -> str:
    """Returns the version that the server states."""
    wire = Wire(address)
    wire.send(PROTOCOL_HEADER)
    stated = wire.expect(Connection.Start).server_properties or {}
    wire.close()
    return str(stated.get("version", "unknown"))


def compare(
    ours: tuple[str, int], theirs: tuple[str, int], cases: Mapping[str, bytes], done: Callable[[], None]
) -> list[Compared]:
    mine, other = answers(ours, cases, done), answers(theirs, cases, done)
    return [Compared(name, mine[name], other[name]) for name in cases]


def table(found: Sequence[Compared], listed: Sequence[Difference], theirs: str) -> Table:
    shown = Table(title=f"what a client sees after bad frames: Treecast and RabbitMQ {theirs}")
    for column in ("case", "Treecast", "RabbitMQ", "difference"):
        shown.add_column(column)
    reasons = {entry.case: entry.reason for entry in listed}
    for one in found:
        unlisted = "[red]not on the allow list[/]"
        why = reasons.get(one.case, unlisted) if one.differs else ""
        shown.add_row(one.case, one.treecast.seen, one.rabbitmq.seen if one.differs else "the same", why)
    return shown


def as_json(
    found: Sequence[Compared], listed: Sequence[Difference], theirs: str, lines: Sequence[str]
) -> str:
    reasons = {entry.case: entry.reason for entry in listed}
    cases = [asdict(one) | {"differs": one.differs, "reason": reasons.get(one.case, "")} for one in found]
    return json.dumps({"rabbitmq": theirs, "cases": cases, "news": list(lines)})


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.amqp_frames", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("-k", dest="select", default="", help="only cases whose names contain this text")
    parser.add_argument("--amqp", metavar="HOST:PORT", help="use this daemon instead of one of our own")
    parser.add_argument("--rabbitmq", metavar="HOST:PORT", help="use this RabbitMQ instead of the system's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    if not options.rabbitmq and (lacking := missing()):
        console.print(lacking, markup=False)
        return 2
    cases = {name: data for name, (data, _) in CASES.items() if options.select in name}
    if not cases:
        parser.error(f"no case contains {options.select!r}")
    listed = [entry for entry in differences() if options.select in entry.case]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        given(options.amqp) if options.amqp else treecast(FACES) as ours,
        given(options.rabbitmq) if options.rabbitmq else rabbitmq() as theirs,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("cases", total=2 * len(cases))
        found = compare(ours, theirs, cases, lambda: progress.advance(task))
        stated = version(theirs)
    lines = news(found, listed)
    if options.json:
        print(as_json(found, listed, stated, lines))
    else:
        console.width = max(console.width, 110)
        console.print(table(found, listed, stated))
        same = sum(not one.differs for one in found)
        console.print(f"{len(found)} cases, {same} with the same answer", highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
