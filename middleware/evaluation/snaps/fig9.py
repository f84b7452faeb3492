"""Figure 9: Table I's scenarios on the network of Fig. 4: a RabbitMQ server, federation, and agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from treecast.middleware.routing.topologies import isp

from ..figure import Check, Figure, Options, Plot, Result, Row, Table, Task
from .scenarios import ACTIVE, FEDERATED, GRACE, MODES, TREECAST, Scenario, Trial, Wires, chosen

_ALL = tuple(range(2, 11))
_MOST = (2, 3, 5, 7, 10, 8, 4)
# Table I: publisher, subscribers, size in KB, rate in Mbit/s. And what rates and links are divided by, so
# that two cores carry all copies.
_TABLE: tuple[tuple[str, int, tuple[int, ...], float, float, float], ...] = (
    ("Scen-1", 1, (3,), 1.5, 2.6, 4),
    ("Scen-2", 1, _MOST, 1.5, 2.6, 4),
    ("Scen-3", 2, (1, 3, 5, 7, 10, 8, 4), 1.5, 2.6, 4),
    ("Scen-4", 1, _ALL, 1.5, 2.6, 4),
    ("Scen-5", 1, _ALL, 6, 10.4, 10),
    ("Scen-6", 1, _ALL, 12, 20.8, 10),
    ("Scen-7", 1, _MOST, 12, 20.8, 10),
)
SATURATED: Final = ("Scen-6", "Scen-7")  # in which federation loses, as the paper says
LINK = Wires(100e6, 0.010)
SECONDS, QUICK_SECONDS = 15.0, 4.0
EVEN: Final = 0.1  # by how much rates of active links may differ
CENTER = "h2"
COLUMNS = (
    *("mode", "scenario", "links", "link least", "link median", "link most", "loss %", "median ms", "p99 ms"),
    *("CPU %", "agents %", "idle %"),
)


def scenarios(options: Options) -> tuple[Scenario, ...]:
    """Returns Table I, or those of it that are asked for. Raises NotMeasured for one that is not in it."""
    found = [
        Scenario(
            name,
            f"h{publisher}",
            tuple([f"h{one}" for one in subscribers]),
            round(1000 * kb),
            mbit * 1e6,
            options.scale or scale,
        )
        for name, publisher, subscribers, kb, mbit, scale in _TABLE
    ]
    return chosen(found, options)


def points(options: Options) -> Sequence[tuple[Any, ...]]:
    scenarios(options)
    return [(mode,) for mode in MODES]


def work(options: Options, task: Task) -> list[Row]:
    from .trial import rows_of  # here: it needs the extra `lab`

    seconds = QUICK_SECONDS if options.quick else SECONDS
    return rows_of(Trial(isp(), LINK, scenarios(options), CENTER, seconds), task)


def finish(options: Options, rows: list[Row]) -> Result:
    by = by_scale(rows)
    notes = [
        "network of the paper's Fig. 4 as far as its text gives it: 16 SRv6 routers in user space, 10 sites,"
        " links of 100 Mbit/s and 10 ms between routers, RabbitMQ servers and agents of this machine",
        f"{by}; latencies are as measured, so a message takes as much longer to enter a link",
        f"lost: not there {GRACE:g} s after the last message was published; active: a link with at least"
        f" {ACTIVE:.0%} of the publisher's rate, counted at interfaces",
        "all servers have their defaults, but for Erlang's schedulers, which do not spin while they wait",
        "CPU: of the servers that a scenario needs, with their agents, as a share of one core",
    ]
    return Result(
        FIGURE.name,
        FIGURE.title,
        COLUMNS,
        rows,
        checks(rows),
        notes,
        plots(by),
        {"seconds": QUICK_SECONDS if options.quick else SECONDS},
        Table(COLUMNS, rows),
    )


def plots(by: str) -> tuple[Plot, ...]:
    """Returns the paper's three pictures and one of CPU. `by`: how rates are scaled."""
    said = f"\n{by}"
    links = ("link least", "link q1", "link median", "link q3", "link most")
    times = ("least ms", "q1 ms", "median ms", "q3 ms", "p99 ms")
    return (
        Plot(
            *("scenario", "link median", "mode"),
            kind="boxes",
            stacked=links,
            title=f"Traffic of each link that carries messages (SNAPS, Fig. 9a){said}",
            labels=("", "Mbit/s per link"),
        ),
        Plot(
            *("scenario", "loss %", "mode"),
            kind="columns",
            title=f"Messages lost (SNAPS, Fig. 9b){said}",
            labels=("", "messages lost (%)"),
        ),
        Plot(
            *("scenario", "median ms", "mode"),
            kind="boxes",
            stacked=times,
            title=f"Latency of messages (SNAPS, Fig. 9c; whiskers: least and 99th percentile){said}",
            labels=("", "latency (ms)"),
            log=True,
        ),
        Plot(
            *("scenario", "CPU %", "mode"),
            kind="columns",
            title=f"CPU of servers, with their agents{said}",
            labels=("", "CPU (% of one core)"),
        ),
    )


def by_scale(rows: list[Row]) -> str:
    """Returns how rates are scaled, in words."""
    scales = dict.fromkeys(row["scale"] for row in rows)
    if set(scales) <= {1}:
        return "unscaled"
    found = []
    for scale in scales:
        names = list(dict.fromkeys(str(row["scenario"]) for row in rows if row["scale"] == scale))
        which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        found.append(f"{scale:g}" + (f" ({which})" if len(scales) > 1 else ""))
    return f"rates and links are divided by {', '.join(found)}, and shown at the paper's scale"


# --- statements


def checks(rows: list[Row]) -> list[Check]:
    """Returns the paper's statements, as far as their scenarios were run."""
    found = [
        Check(
            "with agents, bytes per active link are equal on all active links, within 10 %",
            all(spread(row) <= EVEN for row in of(rows, TREECAST)),
            ", ".join(f"{row['scenario']}: {spread(row):.1%}" for row in of(rows, TREECAST)),
        ),
        Check(
            "with agents nothing is lost",
            all(row["loss %"] == 0 for row in of(rows, TREECAST)),
            losses(rows, TREECAST),
        ),
    ]
    if any(row["scenario"] in SATURATED for row in rows):
        lossy = [row for row in of(rows, FEDERATED) if row["scenario"] in SATURATED]
        found.append(
            Check(
                "federation loses messages in Scen-6 and Scen-7, which fill its links",
                all(row["loss %"] > 0 for row in lossy),
                losses(rows, FEDERATED),
            )
        )
    return [
        *found,
        lower(rows, "median ms", "the median latency"),
        lower(rows, "CPU %", "the CPU of the edge"),
    ]


def lower(rows: list[Row], column: str, what: str) -> Check:
    """Returns the statement that agents have less of a column than federation, in all scenarios."""
    pairs = list(beside(rows, column))
    return Check(
        f"{what} is lower with agents than with federation",
        all(ours < theirs for _, ours, theirs in pairs),
        ", ".join(f"{scenario}: {ours:,.1f} against {theirs:,.1f}" for scenario, ours, theirs in pairs),
    )


def of(rows: list[Row], mode: str) -> list[Row]:
    return [row for row in rows if row["mode"] == mode]


def spread(row: Row) -> float:
    """By how much the rates of active links differ, as a share of the largest one."""
    return 1 - row["link least"] / row["link most"] if row["link most"] else 1.0


def losses(rows: list[Row], mode: str) -> str:
    return ", ".join(f"{row['scenario']}: {row['loss %']:.1f} %" for row in of(rows, mode))


def beside(rows: list[Row], column: str) -> Iterator[tuple[str, float, float]]:
    """Yields a column of agents and of federation for each scenario."""
    theirs = {(row["scenario"], row["run"]): row[column] for row in of(rows, FEDERATED)}
    for row in of(rows, TREECAST):
        if (row["scenario"], row["run"]) in theirs:
            yield row["scenario"], row[column], theirs[row["scenario"], row["run"]]


FIGURE = Figure(
    "snaps-fig9", "RabbitMQ servers at ten sites, alone and joined", 1, points, work, finish, alone=True
)
