"""Names that operators read and machines match: events of log lines and columns of listings.

A log line is a constant event with its values as fields (`model/logs.py`), so that one search finds all
lines of a kind. A listing's columns come from one vocabulary, so that a thing has the same name in all of
them. Metrics are checked where a daemon serves them (tests/unit/daemon/test_manual.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.house.prose import REPOSITORY, tracked

PACKAGES = ("middleware", "shims", "agents", "spark_connectors")


# --- events of log lines

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT = re.compile(r"[A-Za-z0-9][\w ,;:'-]*[\w)]")
FIELD = re.compile(r"[a-z][a-z_]*")
# Keys that every line has; a field of this name would replace them.
RESERVED = {"event", "level", "logger", "timestamp", "exception", "trace"}
WORDS = 14
# Passes on the event that it was made with; `Complaints(...)` is checked instead.
PASSES_ON = ("middleware/model/complaints.py", "middleware/model/logs.py")
# Names and acronyms that begin an event in upper case.
CAPITALS = ("MQTT", "STARE", "VNF")


@dataclass(frozen=True)
class Line:
    """A log statement: its place, its event (None if it is no constant) and the names of its fields."""

    place: str
    event: str | None
    fields: tuple[str, ...] = ()

    def faults(self) -> list[str]:
        event = self.event
        if event is None:
            return [f"{self.place}: the event is not a constant: pass values as fields"]
        found = []
        first = event.split(" ")[0]
        if not EVENT.fullmatch(event) or (first[:1].isupper() and first not in CAPITALS):
            found.append(f"{self.place}: not a lower-case phrase: {event!r}")
        if len(event.split()) > WORDS:
            found.append(f"{self.place}: more than {WORDS} words: {event!r}")
        bad = [name for name in self.fields if name in RESERVED or not FIELD.fullmatch(name)]
        return found + [f"{self.place}: a field cannot be named {name!r}" for name in bad]


def log_lines(path: str, source: str) -> Iterator[Line]:
    """The log statements of a module, and the events that `Complaints` are made with."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        place = f"{path}:{node.lineno}"
        if isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and _is_log(node.func.value):
            names = tuple(key.arg or "**" for key in node.keywords if key.arg != "trace")
            extra = len(node.args) != 1
            yield Line(place, None if extra else _constant(node.args[0]), names)
        elif isinstance(node.func, ast.Name) and node.func.id == "Complaints":
            yield Line(place, _constant(node.args[2]))


def _is_log(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("log", "_log")


def _constant(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def all_log_lines() -> list[Line]:
    return [
        line
        for path in tracked(PACKAGES)
        if path not in PASSES_ON
        for line in log_lines(path, (REPOSITORY / path).read_text(encoding="utf-8"))
    ]


def test_each_log_line_has_a_constant_event_and_its_values_as_fields() -> None:
    lines = all_log_lines()
    assert len(lines) > 150
    assert [fault for line in lines for fault in line.faults()] == []


def test_only_the_log_itself_uses_the_library_for_it() -> None:
    """A logger of the library takes texts with values in them."""
    allowed = {"middleware/model/logs.py", "middleware/daemon/logs.py", "middleware/api/quiet.py"}
    allowed.add("shims/mqtt/websocket.py")  # the logger of the library for WebSocket
    users = {
        path
        for path in tracked(PACKAGES)
        if "logging.getLogger(" in (REPOSITORY / path).read_text(encoding="utf-8")
    }
    assert users == allowed


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ('_log.info("host connected", host=3)', ""),
        ('_log.error("call failed", trace=error, call=name)', ""),
        ('self._log.warning("MQTT publishes wait")', ""),
        ('_log.info("host %d is connected", host)', "not a constant"),
        ('_log.info(f"host {host} is connected")', "not a constant"),
        ("_log.warning(text)", "not a constant"),
        ('Complaints({}, _log, f"bad {what}")', "not a constant"),
        ('_log.info("Host connected")', "lower-case"),
        ('_log.info("host connected.")', "lower-case"),
        ('_log.info("host connected", level=3)', "cannot be named"),
        ('_log.info("host connected", **fields)', "cannot be named"),
        (f'_log.info("{"long " * 20}event")', "words"),
    ],
)
def test_a_log_line_can_be_refused(statement: str, fault: str) -> None:
    (line,) = log_lines("x.py", statement)
    found = line.faults()
    assert len(found) == (1 if fault else 0)
    assert not found or fault in found[0]


# --- columns of listings

# Every column of a listing, by subject. A new listing uses these words for these things; a unit stands last.
COLUMNS = {
    "topics": "topic, partition, partitions, leader, copies, start, end, stable, epoch, state, records, size,"
    " settings",
    "the copy of this host": "start here, end here, size here",
    "lost disks": "lost disk of, time, first, reported end, accepted, problem",
    "groups": "group, type, members, protocol, member, client, host, committed, lag",
    "hosts": "id, fabric, presence, channel, round trip, leads",
    "faces": "face, address, connections, requests, received, sent, errors, socket",
    "streams": "stream, name, origin, carrier, addressed, live, repaired, replayed, filtered",
    "accounts": "expired, refused, outstanding, account, next, behind",
    "pacing": "rate/s, window, on its way, records unsent, set by, why, turnaround ms, out s, left times",
    "cost": "purpose, packets, bytes",
    "benchmarks": "lost, seconds, MB/s",
    "routes": "label, meaning, used at, from, port, to, labels",
    "labs": "node, kind, interface, MAC, IPv4, IPv6, namespace",
    "programs": "table, hits, misses, detail",
    "packet subscriptions": "line, rule, part, value, next state, entries, key bits, words, memory, blocks,"
    " view, filter, versions, fields",
    "checks": "check, level",
    "results": "title",
    "events of the cluster": "number, event, application, object",
    "users and rights": "user, admin, logs in by, permission, operation, resource, pattern, client id,"
    " rates in a second",
    "secured clusters": "role, valid until, expelled",
    "pipelines": "query, batch, rows, strategy, threshold, seed, rules, writes, at origin, for host,"
    " messages, saves, share",
}
VOCABULARY = [word for words in COLUMNS.values() for word in words.split(", ")]
COLUMN = re.compile(r"[a-z]+( [a-z]+)*(/s)?|MAC|IPv4|IPv6|MB/s")


def listings(source: str) -> Iterator[tuple[int, list[str]]]:
    """The columns of each `print_table` of a command, with its line; a name stands for its constant."""
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print_table":
            columns = node.args[0]
            if isinstance(columns, ast.Name):
                columns = constants.get(columns.id, columns)
            if isinstance(columns, ast.Tuple):  # otherwise imported, or the keys of a lab's report
                yield node.lineno, ast.literal_eval(_flat(columns))


def _flat(columns: ast.Tuple) -> ast.expr:
    """The tuple with its starred parts in place."""
    parts: list[ast.expr] = []
    for part in columns.elts:
        inner = part.value if isinstance(part, ast.Starred) else None
        parts += inner.elts if isinstance(inner, ast.Tuple) else [part]
    return ast.List(parts, ast.Load())


def all_listings() -> list[tuple[str, list[str]]]:
    return [
        (f"{path}:{line}", columns)
        for path in tracked(("middleware/cli",))
        for line, columns in listings((REPOSITORY / path).read_text(encoding="utf-8"))
    ]


def test_columns_come_from_one_vocabulary() -> None:
    found = all_listings()
    assert len(found) > 15
    assert [(place, one) for place, columns in found for one in columns if one not in VOCABULARY] == []
    used = {one for _, columns in found for one in columns}
    assert [one for one in VOCABULARY if one not in used] == []
    assert len(set(VOCABULARY)) == len(VOCABULARY)


def test_columns_are_lower_case_words_with_their_unit_last() -> None:
    assert [one for one in VOCABULARY if not COLUMN.fullmatch(one)] == []


def test_listings_are_found_in_a_source() -> None:
    source = (
        'A = ("to", *("from", "what"))\nprint_table(A, [], empty="")\nprint_table(("x",), [], empty="")\n'
    )
    assert list(listings(source)) == [(2, ["to", "from", "what"]), (3, ["x"])]
