"""Figure 11: latency of content that is not cached, with and without a meter that spares it the cache.

The paper's forwarder (hICN on a server) is a queue here that moves 3.5 Gb/s; behind it, and beside it, is the
way to the producer. Two clients stream one content, a third asks for contents that nobody else wants. In the
baseline all requests go through the forwarder. With the meter, compiled tables decide: a content that was
asked for often within a window goes there, the rest goes to the producer at once.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.compile import compile_rules
from ...filters.compiler.machine import TableMachine
from ...filters.compiler.schema import Counter, Header, HeaderField, QueryField, Schema
from ...filters.tree import Aggregate, And, Constraint, Field, Relation
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value

OBJECT: Final = 1400 * 8 / 3500.0  # µs that the forwarder takes for 1,400 bytes
LOAD: Final = 0.9  # of the forwarder in the baseline
COLD: Final = (0.03, 0.1)  # share of requests for contents that are not cached
TRIPS: Final = (20, 50, 100, 200)  # µs to the producer and back
WINDOW, OFTEN = 10_000, 20  # µs, and requests within it
CATALOGUE: Final = 200  # contents that have a meter
HOT: Final = 0
REQUESTS: Final = 50_000
UPSTREAM, FORWARDER = 1, 2
SYSTEMS: Final = ("all by the forwarder", "metered")
KEYS: Final = ("cold share", "trip us", "system")
VALUES: Final = ("cold median us", "cold 95 % us", "hot 95 % us", "by the forwarder %", "hot Mb/s")
COLUMNS: Final = (*KEYS, *VALUES)

_HEADER = Header("request", (HeaderField("content", 64),))
HICN: Final = Schema(
    (_HEADER,), (), (QueryField("request", "content", 64, "exact"),), (Counter("asked", WINDOW, 1024),)
)


def rules() -> Rules:
    """Returns `content == C and count() > N : fwd(forwarder)` for each of the catalogue; the rest goes on."""
    asked = Aggregate("count", ())
    return Rules(
        tuple(
            Rule(
                And(
                    (
                        Constraint(Field(("content",)), Relation.EQ, content),
                        Constraint(asked, Relation.GT, OFTEN),
                    )
                ),
                (Forward((FORWARDER,)),),
            )
            for content in range(CATALOGUE)
        ),
        (Forward((UPSTREAM,)),),
    )


def requests(cold: float, rng: Random) -> list[tuple[float, int]]:
    """Draws times (µs) and contents: the hot one, or one of a million others."""
    found, now = [], 0.0
    for _ in range(REQUESTS):
        now += rng.expovariate(LOAD / OBJECT)
        found.append((now, rng.randrange(1, 1_000_000) if rng.random() < cold else HOT))
    return found


def served(
    asked: list[tuple[float, int]], metered: bool, trip: float
) -> tuple[list[float], list[float], int]:
    """Returns latencies of cold and hot requests, and how many hot ones went through the forwarder."""
    machine = TableMachine(compile_rules(HICN, rules()))
    latencies: tuple[list[float], list[float]] = ([], [])
    free, through = 0.0, 0
    for now, content in asked:
        latency = 0.0
        by_forwarder = not metered or FORWARDER in machine.receive((content,), int(now)).ports
        if by_forwarder:
            free = max(free, now) + OBJECT
            latency = free - now
            through += content == HOT
        if content != HOT or not by_forwarder:  # it isn't in the cache, or the cache was not asked
            latency += trip
        latencies[content == HOT].append(latency)
    return *latencies, through


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(cold, trip) for cold in COLD for trip in TRIPS]


def work(options: Options, task: Task) -> list[Row]:
    cold, trip = task.point
    asked = requests(cold, rng_of(options, "requests", cold, task.run))
    rows: list[Row] = []
    for system in SYSTEMS:
        metered = system == SYSTEMS[1]
        cold_us, hot_us, through = served(asked, metered, trip)
        passing = through if metered else REQUESTS
        # The forwarder at its limit: what it moves of the hot content, and what of it goes past.
        rate = 3500.0 * through / passing * (len(hot_us) / through)
        rows.append(
            {
                "cold share": cold,
                "trip us": trip,
                "system": system,
                "cold median us": _at(cold_us, 0.5),
                "cold 95 % us": _at(cold_us, 0.95),
                "hot 95 % us": _at(hot_us, 0.95),
                "by the forwarder %": 100 * passing / REQUESTS,
                "hot Mb/s": rate,
            }
        )
    return rows


def _at(latencies: list[float], share: float) -> float:
    return sorted(latencies)[int(len(latencies) * share)]


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, VALUES)

    def of(column: str, system: str, cold: float, trip: float) -> float:
        return value(found, column, system=system, **{"cold share": cold, "trip us": trip})

    def less(cold: float, trip: float) -> float:
        """Returns by how many % the 95th percentile of cold content falls."""
        return 100 * (
            1 - of("cold 95 % us", SYSTEMS[1], cold, trip) / of("cold 95 % us", SYSTEMS[0], cold, trip)
        )

    gains = {cold: _gain(found, cold) for cold in COLD}
    cuts = {trip: less(COLD[0], trip) for trip in TRIPS}
    hot = of("by the forwarder %", SYSTEMS[1], COLD[0], TRIPS[0])
    checks = [
        Check(
            "the 95th percentile of uncached content falls, by 21 % for one way to the producer",
            min(cuts.values()) > 0 and min(cuts.values()) < 21 < max(cuts.values()),
            "; ".join(f"{trip} us to the producer and back: {cut:.0f} %" for trip, cut in cuts.items()),
        ),
        Check(
            "other clients stream 3 % faster, as the forwarder has less to do",
            2 < gains[COLD[0]] < 5,
            "; ".join(f"{100 * cold:g} % cold: {gain:.1f} %" for cold, gain in gains.items()),
        ),
        Check(
            "requests for hot content go to the forwarder, those for cold content don't",
            100 * (1 - COLD[0]) * 0.9 < hot < 100 * (1 - COLD[0]),
            f"{hot:.1f} % of all requests, of which {100 * COLD[0]:g} % are cold",
        ),
    ]
    notes = [
        f"a content is hot once it was asked for more than {OFTEN} times in a window of {WINDOW // 1000} ms",
        "the paper states neither the share of cold requests nor the way to the producer: the first follows"
        " from its 3 %, the second from its 21 %",
    ]
    shown = [{**row, "case": f"{row['system']}, {100 * row['cold share']:g} % cold"} for row in found]
    plots = (
        Plot(
            "trip us",
            "cold 95 % us",
            "case",
            labels=("µs to the producer and back", "uncached content, 95th percentile, µs"),
        ),
    )
    return Result("camus-fig11", FIGURE.title, COLUMNS, shown, checks, notes, plots)


def _gain(found: list[Row], cold: float) -> float:
    """Returns by how many % hot content is faster with the meter."""
    before, after = (value(found, "hot Mb/s", system=system, **{"cold share": cold}) for system in SYSTEMS)
    return 100 * (after / before - 1)


FIGURE = Figure("camus-fig11", "Camus: latency of uncached video with a meter", 3, points, work, finish)
