"""Table I: what three applications take of a switch's memory.

Per cent of an ASIC cannot be measured here. The rules are compiled; entries, key bits and groups are counted,
and put into the blocks of the model of `filters.compiler.statistics`, of which a switch has 12 stages with 80
blocks of SRAM and 24 of TCAM each, and 65,536 groups.

The paper leaves open which host a filter of ITCH belongs to, and whether "1000 hop_latency ranges" are
thresholds that overlap or ranges that don't. Each reading is a row.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.compile import Compiled, compile_rules
from ...filters.compiler.schema import Header, HeaderField, QueryField, Schema
from ...filters.compiler.statistics import sizes
from ...filters.tree import And, Constraint, Field, Relation
from ..figure import Check, Figure, Options, Plot, Result, Row, Table, Task, averages, rng_of, value
from . import fig9
from .rules100k import drawn

SRAM, TCAM, GROUPS = 12 * 80, 12 * 24, 1 << 16  # blocks, blocks, multicast groups
IDENTIFIERS: Final = 1_000_000
HOSTS: Final = 32
PAPER: Final = {"ITCH": (3.7, 4.17, 46.0), "INT": (0.73, 3.45, 0.0), "hICN": (74.9, 0.69, 0.0)}
POINTS: Final = (
    ("ITCH", "hosts drawn evenly"),
    ("ITCH", "two hosts per symbol"),
    ("ITCH", "host by price"),
    ("INT", "thresholds, one collector"),
    ("INT", "ranges, one collector in eight"),
    ("hICN", "identifiers"),
)
_READINGS: Final = {
    "hosts drawn evenly": "uniform",
    "two hosts per symbol": "by symbol",
    "host by price": "grid",
}
KEYS: Final = ("application", "reading")
VALUES: Final = (
    *("rules", "entries", "key bits", "groups", "SRAM blocks", "TCAM blocks", "SRAM %", "TCAM %", "groups %"),
)
COLUMNS: Final = (*KEYS, *VALUES, "paper SRAM %", "paper TCAM %", "paper groups %")

_HEADER = Header("request", (HeaderField("content", 64),))
HICN: Final = Schema((_HEADER,), (), (QueryField("request", "content", 64, "exact"),))
_CONTENT = Field(("content",))


def compiled_for(application: str, reading: str, rng: Random) -> Compiled:
    if application == "ITCH":
        from .workload import ITCH, STOCK_FIRST

        return compile_rules(ITCH, drawn(_READINGS[reading], rng), STOCK_FIRST)
    if application == "INT":
        return compile_rules(fig9.INT, Rules(telemetry(reading)))
    return compile_rules(HICN, Rules(identifiers(IDENTIFIERS, rng)))


def telemetry(reading: str) -> tuple[Rule, ...]:
    """Returns 100,000 rules: of 100 switches, with 1,000 latencies each."""
    places = [(s, fig9.LEAST + n) for s in range(fig9.SWITCHES) for n in range(fig9.LATENCIES)]
    if reading.startswith("thresholds"):
        return tuple(fig9.above(switch, latency, 1) for switch, latency in places)
    return tuple(_between(switch, latency, 1 + latency % 8) for switch, latency in places)


def _between(switch: int, latency: int, collector: int) -> Rule:
    """Returns `switch_id == S and hop_latency >= L and hop_latency < L + 1 : fwd(H)`, one range."""
    hop = Field(("hop_latency",))
    parts = (
        Constraint(Field(("switch_id",)), Relation.EQ, switch),
        Constraint(hop, Relation.GE, latency),
        Constraint(hop, Relation.LT, latency + 1),
    )
    return Rule(And(parts), (Forward((collector,)),))


def identifiers(count: int, rng: Random) -> tuple[Rule, ...]:
    """Returns `content == C : fwd(H)` for so many contents, all different."""
    step = rng.getrandbits(64) | 1
    return tuple(
        Rule(
            Constraint(_CONTENT, Relation.EQ, number * step & (1 << 64) - 1),
            (Forward((1 + rng.randrange(HOSTS),)),),
        )
        for number in range(count)
    )


def points(options: Options) -> list[tuple[Any, ...]]:
    return list(POINTS)


def work(options: Options, task: Task) -> list[Row]:
    application, reading = task.point
    compiled = compiled_for(application, reading, rng_of(options, application, reading, task.run))
    found = sizes(compiled)
    sram = sum(one.blocks for one in found if one.memory == "SRAM")
    tcam = sum(one.blocks for one in found if one.memory == "TCAM")
    return [
        {
            "application": application,
            "reading": reading,
            "rules": compiled.rules,
            "entries": compiled.entries,
            "key bits": max(one.key_bits for one in found),
            "groups": len(compiled.groups),
            "SRAM blocks": sram,
            "TCAM blocks": tcam,
            "SRAM %": 100 * sram / SRAM,
            "TCAM %": 100 * tcam / TCAM,
            "groups %": 100 * len(compiled.groups) / GROUPS,
        }
    ]


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, VALUES)

    def of(column: str, application: str) -> list[float]:
        return [row[column] for row in found if row["application"] == application]

    together = {memory: sum(max(of(f"{memory} %", one)) for one in PAPER) for memory in ("SRAM", "TCAM")}
    most = {memory: max(found, key=lambda row: row[f"{memory} %"]) for memory in ("SRAM", "TCAM")}
    shares = {one: max(of("groups %", one)) for one in PAPER}
    drawn_evenly = value(found, "groups %", reading=POINTS[0][1])
    checks = [
        Check(
            "each application fits the switch",
            all(max(of(f"{memory} %", one)) < 100 for one in PAPER for memory in ("SRAM", "TCAM")),
            f"most of SRAM: {_told(most['SRAM'], 'SRAM')}; most of TCAM: {_told(most['TCAM'], 'TCAM')}",
        ),
        Check(
            "the applications fit the switch together",
            max(together.values()) < 100,
            f"{together['SRAM']:.0f} % of SRAM and {together['TCAM']:.0f} % of TCAM, by the larger readings",
        ),
        Check(
            "only ITCH makes heavy use of multicast groups",
            shares["ITCH"] > 10 and shares["INT"] == shares["hICN"] == 0,
            f"{drawn_evenly:.0f} % with hosts drawn evenly; INT and hICN have none",
        ),
        Check(
            "a million identifiers take SRAM, and little TCAM",
            min(of("SRAM %", "hICN")) > max(max(of("SRAM %", one)) for one in ("ITCH", "INT"))
            and max(of("TCAM %", "hICN")) <= 0.69,
            f"{max(of('SRAM %', 'hICN')):.1f} % of SRAM, {max(of('TCAM %', 'hICN')):.2f} % of TCAM",
        ),
    ]
    notes = [
        f"the switch of the model has {SRAM} blocks of SRAM (1,024 words of 128 bits), {TCAM} of TCAM (512"
        f" words of 44 bits) and {GROUPS:,} groups; a block belongs to one table",
        "paper's columns: of its ASIC, with the program's other tables",
        "thresholds with one collector: the lowest of each switch says all that the others do",
        "the model keeps one identifier in each word of SRAM, and 983,040 words are a switch's",
    ]
    names = ("paper SRAM %", "paper TCAM %", "paper groups %")
    shown = [{**row, **dict(zip(names, PAPER[row["application"]], strict=True))} for row in found]
    drawing = [
        {
            **row,
            "rules of": f"{row['application']}, {row['reading']}",
            "memory": memory,
            "%": row[f"{memory} %"],
        }
        for row in shown
        for memory in ("SRAM", "TCAM", "groups")
    ]
    plots = (Plot("rules of", "%", "memory", kind="bars", labels=("", "% of the model's switch")),)
    table_rows = [{name: _whole(row[name]) for name in COLUMNS} for row in shown]
    return Result(
        "camus-table1",
        FIGURE.title,
        (*KEYS, "memory", "%"),
        drawing,
        checks,
        notes,
        plots,
        {},
        Table(COLUMNS, table_rows),
    )


def _whole(found: object) -> object:
    """Returns a count without its decimal places."""
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _told(row: Row, memory: str) -> str:
    return f"{row['application']}, {row['reading']}: {row[f'{memory} %']:.1f} %"


FIGURE = Figure("camus-table1", "Camus: memory of three applications", 1, points, work, finish)
