"""Figure 9: filtering of telemetry by the number of filters: one test after the other, or tables.

The paper compares programs on a server with a switch of 100 Gb/s. Nothing of a switch's speed can be
measured here. What can be counted is what a packet costs: tests of filters, look-ups in tables. Measured is
the processor time on this machine, of a plain loop over the filters, of the same tables, and of the
generated program on the embedded target.

Filters are `switch_id == S and hop_latency > L : fwd(H)`, of 100 switches, 1,000 latencies and 8 collectors,
each drawn once. Latencies of packets are such that fewer than 1 % match.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any, Final

from ...dataplane.p4 import Switch, load_program
from ...dataplane.subscriptions.entries import install
from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.compile import compile_rules
from ...filters.compiler.machine import TableMachine
from ...filters.compiler.program import program_text
from ...filters.compiler.schema import Header, HeaderField, QueryField, Schema
from ...filters.tree import And, Constraint, Field, Relation
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value

FILTERS: Final = (10, 100, 1000, 10_000, 100_000)
SWITCHES, LATENCIES, COLLECTORS = 100, 1000, 8
LEAST: Final = 1000  # of the latencies that filters name
SLOW: Final = 0.008  # share of packets above it
PACKETS: Final = 2000
TESTS: Final = 20_000_000  # of the plain loop: it gets fewer packets if there are many filters
FRAME: Final = 100  # bytes of a telemetry packet, with what is between frames
CLOCK_HZ, INSTRUCTIONS = 1.6e9, 100  # the paper's server: of its core, and for each packet
HOW: Final = ("a loop over filters", "tables", "generated program")
KEYS: Final = ("filters", "how")
VALUES: Final = ("steps", "us", "matching %", "wrong")
COLUMNS: Final = (*KEYS, *VALUES)

_HEADER = Header("hop", (HeaderField("switch_id", 32), HeaderField("hop_latency", 32)))
INT: Final = Schema(
    (_HEADER,), (), (QueryField("hop", "switch_id", 32, "exact"), QueryField("hop", "hop_latency", 32))
)
_SWITCH, _LATENCY = Field(("switch_id",)), Field(("hop_latency",))

Drawn = tuple[int, int, int]  # switch, latency, collector


def drawn(count: int, rng: Random) -> list[Drawn]:
    """Draws filters that all differ in switch or latency."""
    places = rng.sample(range(SWITCHES * LATENCIES), count)
    return [
        (place // LATENCIES, LEAST + place % LATENCIES, 1 + rng.randrange(COLLECTORS)) for place in places
    ]


def above(switch: int, latency: int, collector: int) -> Rule:
    """Returns `switch_id == S and hop_latency > L : fwd(H)`."""
    return Rule(
        And((Constraint(_SWITCH, Relation.EQ, switch), Constraint(_LATENCY, Relation.GT, latency))),
        (Forward((collector,)),),
    )


def packet(rng: Random) -> tuple[int, int]:
    """Draws a switch and a latency."""
    latency = rng.randrange(LEAST, 2 * LEAST + LATENCIES) if rng.random() < SLOW else rng.randrange(LEAST)
    return rng.randrange(SWITCHES), latency


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(count,) for count in FILTERS]


def work(options: Options, task: Task) -> list[Row]:
    (count,) = task.point
    rng = rng_of(options, "filters", count, task.run)
    chosen = drawn(count, rng)
    compiled = compile_rules(INT, Rules(tuple(above(*one) for one in chosen)))
    machine = TableMachine(compiled)
    sent = [packet(rng) for _ in range(PACKETS)]
    looped = sent[: max(20, min(PACKETS, TESTS // count))]
    truth, loop_us = _timed(
        lambda one: {h for s, limit, h in chosen if one[0] == s and one[1] > limit}, looped
    )
    by_tables, table_us = _timed(lambda one: set(machine.receive(one, 0).ports), sent)
    steps = sum(len(machine.trace(one, 0)[0]) for one in sent) / PACKETS
    switch = Switch(load_program(program_text(INT, compiled.order), "telemetry.p4"), ports=range(16))
    install(compiled, switch)
    frames = {one: one[0].to_bytes(4) + one[1].to_bytes(4) for one in sent}
    by_program, program_us = _timed(
        lambda one: {out.port for out in switch.receive(9, frames[one], 0.0)}, sent
    )
    matching = 100 * sum(map(bool, by_tables)) / PACKETS
    wrong = sum(a != b for a, b in zip(truth, by_tables, strict=False))
    told = zip(
        HOW,
        (float(count), steps, steps),
        (loop_us, table_us, program_us),
        (0, wrong, sum(a != b for a, b in zip(by_tables, by_program, strict=True))),
        strict=True,
    )
    return [
        {"filters": count, "how": how, "steps": n, "us": us, "matching %": matching, "wrong": differ}
        for how, n, us, differ in told
    ]


def _timed(decide: Any, sent: list[tuple[int, int]]) -> tuple[list[set[int]], float]:
    """Returns where packets go, and the processor time for each, in µs."""
    began = time.process_time()
    found = [decide(one) for one in sent]
    return found, 1e6 * (time.process_time() - began) / len(sent)


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, VALUES)

    def of(column: str, filters: int, how: str) -> float:
        return value(found, column, filters=filters, how=how)

    def grown(column: str, how: str, since: int) -> float:
        return of(column, FILTERS[-1], how) / of(column, since, how)

    software, line = CLOCK_HZ / INSTRUCTIONS / 1e6, 100e9 / 8 / FRAME / 1e6
    matching = max(row["matching %"] for row in found)
    checks = [
        Check(
            "a core of 1.6 GHz that spends 100 instructions on a packet processes 16 million a second",
            software == 16,
            f"{software:g} million; 100 Gb/s are {line:.0f} million frames of {FRAME} bytes",
        ),
        Check("filters match less than 1 % of the packets", matching < 1, f"at most {matching:.2f} %"),
        Check(
            "filtering in software doesn't scale with the number of filters, least of all above 10,000",
            grown("us", HOW[0], 10_000) > 5,
            f"a loop takes {grown('us', HOW[0], 10_000):.1f} times as long with 100,000 as with 10,000",
        ),
        Check(
            "with tables the cost of a packet does not depend on the number of filters",
            max(row["steps"] for row in found if row["how"] == HOW[2]) <= 2 and grown("us", HOW[2], 1000) < 2,
            f"the generated program: {of('steps', 1000, HOW[2]):.2f} and"
            f" {of('steps', FILTERS[-1], HOW[2]):.2f} look-ups with 1,000 and {FILTERS[-1]:,} filters,"
            f" {grown('us', HOW[2], 1000):.2f} times the processor time",
        ),
        Check(
            "all three send each packet to the same collectors",
            not any(row["wrong"] for row in found),
            f"{sum(row['wrong'] for row in found):g} packets differ",
        ),
    ]
    notes = [
        "steps: tests of a packet by the loop, look-ups in tables of fields by the others",
        "few filters name few switches: then most packets are through after one look-up",
        "tables also make filtering in software scale: the paper's programs test one filter after the other",
    ]
    plots = (Plot("filters", "us", "how", labels=("filters", "µs of processor time for a packet"), log=True),)
    return Result("camus-fig9", FIGURE.title, COLUMNS, found, checks, notes, plots)


FIGURE = Figure("camus-fig9", "Camus: cost of a telemetry packet by filters", 1, points, work, finish)
