"""Figure 8: from publication to delivery of a subscriber's messages, filtered by itself or by the switch.

No switch and no trace are here, so a model with the paper's numbers takes their place. A subscriber is a
queue that filters a message in the time that makes 8.25 million packets a second 90 % of what it can. The
switch takes 1 µs for each pass, and one pass for each message of a packet. Which messages it lets through is
what compiled tables say. How bursty the feed is was not stated: packets come in bursts of a stated mean
length at the speed of the link, and as many as load the subscriber that filters to 90 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct

from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.bounds import bounds_of
from ...filters.compiler.compile import compile_rules
from ...filters.compiler.machine import TableMachine
from ...filters.tree import Constraint, Field, Relation
from ..figure import Check, Figure, Options, Plot, Result, Row, Table, Task, rng_of
from .workload import ITCH, STOCK_FIRST

LOAD: Final = 0.9
PER_MESSAGE: Final = LOAD / 8.25  # µs that the subscriber takes to filter a message
PASS: Final = 1.0  # µs of a pass through the switch
BITS_PER_US: Final = 25_000.0
HEADERS, MESSAGE, GAP = 62, 38, 24  # bytes: up to MoldUDP64's count, a message, between frames
MOST: Final = 12
PACKETS: Final = 150_000

BURSTS: Final = (1, 64, 256)  # packets, mean
SHARES: Final = {
    "paper, Nasdaq": 0.005,
    "paper, synthetic": 0.05,
    "slides, Nasdaq": 0.001,
    "slides, synthetic": 0.01,
    "slides, worst case": 1.0,
}
SYSTEMS: Final = ("switch", "subscriber")  # who filters
WITHIN: Final = (20, 50, 100, 300, 500)  # µs
CURVE: Final = (0, 1, 2, 3, 5, 7, 10, 15, *range(20, 101, 10), *range(125, 501, 25))
COLUMNS: Final = (
    *("workload", "filter at", "burst", "messages", "median us", "99 % us", "most us"),
    *(f"within {limit} us %" for limit in WITHIN),
)


class Packet(Struct, frozen=True):
    """`sent` in µs. `wanted`: for each message whether it is the subscriber's."""

    sent: float
    wanted: tuple[bool, ...]


def filters() -> dict[str, bool]:
    """Returns stocks, and whether the switch sends their messages to the subscriber."""
    stock = Constraint(Field(("stock",)), Relation.EQ, "GOOGL")
    machine = TableMachine(compile_rules(ITCH, Rules((Rule(stock, (Forward((1,)),)),)), STOCK_FIRST))
    field = ITCH.fields[0]
    values = {
        name: bounds_of(Relation.EQ, name, field.width, field.pad, "stock")[0] for name in ("GOOGL", "AAPL")
    }
    return {name: bool(machine.receive((value, 1), 0).ports) for name, value in values.items()}


def packets(workload: str, burst: int, rng: Random, count: int) -> list[Packet]:
    """Draws a feed that loads a subscriber who filters it to `LOAD`."""
    passes, share = filters(), SHARES[workload]
    several = "Nasdaq" not in workload
    weights = [1 / n for n in range(1, MOST + 1)]
    found: list[Packet] = []
    now = 0.0
    while len(found) < count:
        size = 1 if burst == 1 else 1 + int(rng.expovariate(1 / (burst - 1)))
        begin, busy = now, 0.0
        for _ in range(min(size, count - len(found))):
            messages = MOST if share == 1.0 else 1
            if several and share < 1.0:
                messages = rng.choices(range(1, MOST + 1), weights)[0]
            wanted = tuple(passes["GOOGL" if rng.random() < share else "AAPL"] for _ in range(messages))
            found.append(Packet(now, wanted))
            now += (HEADERS + messages * MESSAGE + GAP) * 8 / BITS_PER_US
            busy += messages * PER_MESSAGE
        # The mean of the silence makes up for what the burst was faster than the load allows.
        now += rng.expovariate(1.0) * max(busy / LOAD - (now - begin), 0.0)
    return found


def filtered_by_subscriber(feed: Sequence[Packet]) -> list[float]:
    """Returns the latency of each wanted message, in µs: all are filtered one after the other."""
    found: list[float] = []
    free = 0.0
    for packet in feed:
        free = max(free, packet.sent + PASS)
        for wanted in packet.wanted:
            free += PER_MESSAGE
            if wanted:
                found.append(free - packet.sent)
    return found


def filtered_by_switch(feed: Sequence[Packet]) -> list[float]:
    """As `filtered_by_subscriber`: the subscriber gets its messages alone, and takes as long for each."""
    arrivals = sorted(
        (packet.sent + PASS * len(packet.wanted), packet.sent, sum(packet.wanted))
        for packet in feed
        if any(packet.wanted)
    )
    found: list[float] = []
    free = 0.0
    for arrived, sent, count in arrivals:
        free = max(free, arrived)
        for _ in range(count):
            free += PER_MESSAGE
            found.append(free - sent)
    return found


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(workload, burst) for workload in SHARES for burst in BURSTS]


def work(options: Options, task: Task) -> list[Row]:
    workload, burst = task.point
    feed = packets(workload, burst, rng_of(options, "feed", workload, burst, task.run), PACKETS)
    by = {"switch": filtered_by_switch(feed), "subscriber": filtered_by_subscriber(feed)}
    rows: list[Row] = []
    for system in SYSTEMS:
        latencies = sorted(by[system])
        count = len(latencies)
        row: Row = {"workload": workload, "filter at": system, "burst": burst, "messages": count}
        row |= {"median us": latencies[count // 2], "99 % us": latencies[int(count * 0.99)]}
        row |= {"most us": latencies[-1]}
        row |= {f"within {limit} us %": _within(latencies, limit) for limit in WITHIN}
        row = {name: round(each, 2) if isinstance(each, float) else each for name, each in row.items()}
        rows.append(row | {"curve": [round(_within(latencies, limit), 2) for limit in CURVE]})
    return rows


def _within(latencies: Sequence[float], limit: float) -> float:
    return 100 * sum(1 for one in latencies if one <= limit) / len(latencies)


def finish(options: Options, rows: list[Row]) -> Result:
    def of(workload: str, system: str, column: str) -> list[float]:
        """Returns a column, one value for each length of bursts."""
        return [row[column] for row in rows if row["workload"] == workload and row["filter at"] == system]

    def compared(workload: str, column: str) -> str:
        switch, subscriber = (of(workload, system, column) for system in SYSTEMS)
        return "; ".join(
            f"bursts of {burst:,}: {one:g} against {other:g}"
            for burst, one, other in zip(BURSTS, switch, subscriber, strict=True)
        )

    def lower(workload: str) -> bool:
        """Whether the switch's tail is shorter wherever packets come in bursts."""
        switch, subscriber = (of(workload, system, "most us") for system in SYSTEMS)
        return all(one < other for one, other in list(zip(switch, subscriber, strict=True))[1:])

    checks = [
        Check(
            "paper, Nasdaq trace: all messages within 50 us by the switch, some later by the subscriber",
            min(of("paper, Nasdaq", "switch", "within 50 us %")) == 100 and lower("paper, Nasdaq"),
            f"most us: {compared('paper, Nasdaq', 'most us')}",
        ),
        Check(
            "paper, synthetic feed: 99.5 % within 20 us by the switch, fewer by the subscriber",
            min(of("paper, synthetic", "switch", "within 20 us %")) >= 99.5
            and of("paper, synthetic", "subscriber", "within 20 us %")[-1] < 99.5,
            f"within 20 us: {compared('paper, synthetic', 'within 20 us %')}",
        ),
        Check(
            "slides, Nasdaq trace: all within 100 us by the switch, 84 % by the subscriber",
            min(of("slides, Nasdaq", "switch", "within 100 us %")) == 100
            and of("slides, Nasdaq", "subscriber", "within 100 us %")[-1] < 84,
            f"within 100 us: {compared('slides, Nasdaq', 'within 100 us %')}",
        ),
        Check(
            "slides, synthetic feed: 99 % within 20 us by the switch, within 500 us by the subscriber",
            min(of("slides, synthetic", "switch", "within 20 us %")) >= 99
            and of("slides, synthetic", "subscriber", "99 % us")[-1] > 20,
            f"99 % us: {compared('slides, synthetic', '99 % us')}",
        ),
        Check(
            "replication for several messages of a packet costs less than filtering them at the subscriber",
            lower("paper, synthetic") and lower("slides, synthetic"),
            f"most us: {compared('paper, synthetic', 'most us')}",
        ),
    ]
    notes = [
        f"a message takes the subscriber {1000 * PER_MESSAGE:.0f} ns: 90 % of its capacity is 8.25 million a"
        " second, as in the paper",
        "bursts of 64 packets give the hundreds of us that the paper and the slides show for the subscriber;"
        " without bursts a queue loaded to 90 % is short, and 12 passes take as long as filtering",
        "worst case: all messages are the subscriber's, so the switch saves nothing and adds its passes",
    ]
    curves = [
        {
            "workload": row["workload"],
            "case": f"{row['filter at']}, bursts of {row['burst']:,}",
            "us": limit,
            "messages %": share,
        }
        for row in rows
        for limit, share in zip(CURVE, row["curve"], strict=True)
    ]
    table = Table(COLUMNS, [{name: row[name] for name in COLUMNS} for row in rows])
    plots = (
        Plot("us", "messages %", "case", panel="workload", labels=("µs from publication", "% of messages")),
    )
    columns = ("workload", "case", "us", "messages %")
    return Result("camus-fig8", FIGURE.title, columns, curves, checks, notes, plots, table=table)


FIGURE = Figure("camus-fig8", "Camus: latency of market data, by who filters", 1, points, work, finish)
