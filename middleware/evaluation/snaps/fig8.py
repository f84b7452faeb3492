"""Figure 8: two sites and one router: what servers, federation and agents add to latency, and what they take.

No link has a delay, so that latencies are those of the programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from treecast.middleware.routing.network import Network, build

from ..figure import Check, Figure, Options, Plot, Result, Row, Table, Task
from .fig9 import by_scale, losses, lower, of
from .scenarios import GRACE, MODES, TREECAST, Scenario, Trial, Wires, chosen

# Size in KB and the interval in ms: Fig. 8b, whose first five have one interval.
_LOADS: tuple[tuple[str, float, float], ...] = (
    ("2.6 Mbit/s", 1.5, 4.5),
    ("5.3 Mbit/s", 3, 4.5),
    ("10.7 Mbit/s", 6, 4.5),
    ("21.3 Mbit/s", 12, 4.5),
    ("42.7 Mbit/s", 24, 4.5),
    ("70.1 Mbit/s", 24, 2.74),
)
LINK = Wires(100e6, 0.0)
SCALE: Final = 4.0
SECONDS, QUICK_SECONDS = 10.0, 3.0
CENTER = "h1"
COLUMNS = (
    "mode",
    "scenario",
    "loss %",
    "q1 ms",
    "median ms",
    "q3 ms",
    "p99 ms",
    "CPU %",
    "agents %",
    "idle %",
)
_BOX = ("least ms", "q1 ms", "median ms", "q3 ms", "p99 ms")


def network() -> Network:
    """Returns two hosts at one router."""
    return build(["r1", "h1", "h2"], [(0, 1), (0, 2)], hosts=[1, 2])


def scenarios(options: Options) -> tuple[Scenario, ...]:
    """Returns the paper's loads, or those that are asked for. Raises NotMeasured for one that it has not."""
    found = [
        Scenario(
            name, "h1", ("h2",), round(1000 * kb), 1000 * kb * 8 / (interval / 1000), options.scale or SCALE
        )
        for name, kb, interval in _LOADS
    ]
    return chosen(found, options)


def points(options: Options) -> Sequence[tuple[Any, ...]]:
    scenarios(options)
    return [(mode,) for mode in MODES]


def work(options: Options, task: Task) -> list[Row]:
    from .trial import rows_of  # here: it needs the extra `lab`

    seconds = QUICK_SECONDS if options.quick else SECONDS
    return rows_of(Trial(network(), LINK, scenarios(options), CENTER, seconds), task)


def finish(options: Options, rows: list[Row]) -> Result:
    by = by_scale(rows)
    notes = [
        "two sites at one SRv6 router in user space, links of 100 Mbit/s without delay",
        f"{by}; latencies are as measured",
        f"lost: not there {GRACE:g} s after the last message was published",
        "all servers have their defaults, but for Erlang's schedulers, which do not spin while they wait",
        "CPU: of the servers with their agents, as a share of one core",
    ]
    curves = [
        {"mode": row["mode"], "share": share / 100, "ms": ms}
        for row in rows
        if row["scenario"] == rows[0]["scenario"]
        for share, ms in enumerate(row["latencies ms"])
        if share < 100
    ]
    settings = {"seconds": QUICK_SECONDS if options.quick else SECONDS}
    first = rows[0]["scenario"] if rows else ""
    return Result(
        FIGURE.name,
        FIGURE.title,
        COLUMNS,
        [*rows, *curves],
        checks(rows),
        notes,
        plots(by, first),
        settings,
        Table(COLUMNS, rows),
    )


def plots(by: str, first: str) -> tuple[Plot, ...]:
    """Returns the paper's three pictures. `by`: how rates are scaled; `first`: the load of the first one."""
    said = f"\n{by}"
    return (
        Plot(
            *("ms", "share", "mode"),
            title=f"Latency of messages at {first} (SNAPS, Fig. 8a){said}",
            labels=("latency (ms)", "share of messages"),
        ),
        Plot(
            *("scenario", "median ms", "mode"),
            kind="boxes",
            stacked=_BOX,
            title=f"Latency by rate (SNAPS, Fig. 8b; whiskers: least and 99th percentile){said}",
            labels=("", "latency (ms)"),
            log=True,
        ),
        Plot(
            *("scenario", "CPU %", "mode"),
            kind="columns",
            title=f"CPU of servers, with their agents (SNAPS, Fig. 8c){said}",
            labels=("", "CPU (% of one core)"),
        ),
    )


def checks(rows: list[Row]) -> list[Check]:
    """Returns the paper's statements."""
    return [
        lower(rows, "median ms", "the median latency"),
        lower(rows, "CPU %", "the CPU of the edge"),
        Check(
            "with agents nothing is lost",
            all(row["loss %"] == 0 for row in of(rows, TREECAST)),
            losses(rows, TREECAST),
        ),
    ]


FIGURE = Figure(
    "snaps-fig8", "RabbitMQ servers at two sites, alone and joined", 1, points, work, finish, alone=True
)
