"""Figure 10: a tree leaves a link that other traffic fills; latency and loss, with and without that."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from msgspec import Struct

from treecast.middleware.routing.replication.engineering import HIGH

from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of, value
from .lab import RATE, Lab

STREAM = ("h2", ("h5", "h7", "h8"))
STREAM_RATE = 17  # Mbit/s
BACKGROUND = (20, 40, 60, 80, 100, 120)  # Mbit/s on link 12-16 in the end; a link has 100
CAPACITY = RATE  # bits per second that count as 100 Mbit/s; less is the same at fewer packets per second
METHODS = ("shortest paths", "traffic engineering")
GROWS, STAYS, AFTER = 3.0, 2.0, 2.0  # seconds: the background grows, stays, and is gone
LOOK = 0.5  # seconds between looks at counters
RUNS = 3
KEYS = ("background Mbit/s", "method")
VALUES = ("loss %", "median ms", "99th percentile ms", "twice", "moves", "loss % after")
COLUMNS = (*KEYS, *VALUES, "± loss %", "± median ms", "away", "back")
_ACROSS = "other traffic on link 12-16 (Mbit/s; the link has 100)"
PLOTS = (
    Plot(
        *("background Mbit/s", "loss %", "method"),
        error="± loss %",
        title="Messages lost while other traffic fills a link (SNAPS, Fig. 10b)",
        labels=(_ACROSS, "messages lost (%)"),
    ),
    Plot(
        *("background Mbit/s", "median ms", "method"),
        error="± median ms",
        title="Latency while other traffic fills a link (SNAPS, Fig. 10a)",
        labels=(_ACROSS, "median latency (ms)"),
        zero=False,
    ),
)
PLACES = {"r10", "r16"}  # where the paper's tree has its two segments


class Seen(Struct):
    """The moves of a tree: how many, whether it left link 12-16, and whether it returned."""

    moves: int = 0
    away: bool = False
    back: bool = False


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(background, method) for background in BACKGROUND for method in METHODS]


def work(options: Options, task: Task) -> list[Row]:
    background, method = task.point
    rng = rng_of(options, "fig10", background, task.run)  # the same packets for both methods
    lab = Lab(STREAM, STREAM_RATE * CAPACITY / 100, rng, CAPACITY)
    return [asyncio.run(measure(lab, background, method, task.run))]


async def measure(lab: Lab, background: int, method: str, run: int) -> Row:
    await lab.start()
    seen = Seen()
    engineered = method == METHODS[1]
    lab.grow(background * CAPACITY / 100, GROWS, GROWS + STAYS)
    await follow(lab, seen, GROWS + STAYS, engineered)
    measured = lab.stream.sent
    seen.away = not lab.uses("r12", "r16")
    places = lab.places()
    await follow(lab, seen, AFTER, engineered)
    seen.back = lab.uses("r12", "r16")
    lab.drain()
    late = lab.delays(int(measured * GROWS / (GROWS + STAYS)), measured)  # while the background stays
    return {
        "background Mbit/s": background,
        "method": method,
        "run": run,
        "loss %": 100 * lab.lost(0, measured),
        "loss % after": 100 * lab.lost(measured, lab.stream.sent),
        "median ms": 1000 * late[len(late) // 2],
        "99th percentile ms": 1000 * late[len(late) * 99 // 100],
        "twice": lab.twice(),
        "moves": seen.moves,
        "away": int(seen.away),
        "back": int(seen.back),
        "places": ",".join(sorted(places | lab.places())),
    }


async def follow(lab: Lab, seen: Seen, seconds: float, engineered: bool) -> None:
    """Lets packets flow, with a look at the counters now and then."""
    end = lab.now + seconds
    while lab.now < end:
        lab.run(min(LOOK, end - lab.now))
        before = lab.links()
        await lab.look(engineered)
        seen.moves += lab.links() != before


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, [*VALUES, "away", "back"])
    for row in found:
        mine = [one for one in rows if all(one[key] == row[key] for key in KEYS)]
        for column in ("loss %", "median ms"):
            row[f"± {column}"] = round(spread([one[column] for one in mine]), 3)
    notes = [
        "network of the paper's Fig. 4 as far as its text gives it: 16 routers, 10 sites, links of"
        " 100 Mbit/s and 10 ms (4-12 and 4-16: 5 ms), queues of 64 KB",
        f"{STREAM_RATE} Mbit/s from site 2 to 5, 7 and 8; Poisson traffic on link 12-16 grows for"
        f" {GROWS:.0f} s and stays for {STAYS:.0f} s; trees move above {HIGH:.0%} of a link",
        "routers run p4/srv6_replication.p4 in the emulator, in virtual time and at full rate, so that loss"
        " and latency come from links and queues alone, not from the machine's speed",
    ]
    return Result(FIGURE.name, FIGURE.title, COLUMNS, found, checks(rows), notes, PLOTS)


def spread(values: list[float]) -> float:
    """Returns the standard deviation of runs."""
    middle = mean(values)
    return math.sqrt(mean([(value - middle) ** 2 for value in values]))


def checks(rows: list[Row]) -> list[Check]:
    shortest, engineered = METHODS
    shown = sorted({row["background Mbit/s"] for row in rows})

    def at(column: str, method: str) -> list[float]:
        return [value(rows, column, method=method, **{"background Mbit/s": one}) for one in shown]

    alone, moved = at("loss %", shortest), at("loss %", engineered)
    slow, quick = at("median ms", shortest)[-1], at("median ms", engineered)[-1]
    away = at("away", engineered)
    expected = [float(one + STREAM_RATE > 100 * HIGH) for one in shown]
    places = {row["places"] for row in rows}
    return [
        Check(
            "without traffic engineering, loss appears when background traffic passes the link's capacity",
            alone[0] == 0 and alone[-1] > 1 and alone == sorted(alone),
            ", ".join(f"{one} Mbit/s: {loss:.1f} %" for one, loss in zip(shown, alone, strict=True)),
        ),
        Check(
            "with traffic engineering, loss stays zero while background traffic grows past the link",
            max(moved) == 0 and shown[-1] > 100,
            f"at most {max(moved):.3f} % up to {shown[-1]} Mbit/s",
        ),
        Check(
            "as traffic grows, messages arrive earlier with traffic engineering than without",
            quick < slow,
            f"median {quick:.1f} ms against {slow:.1f} ms",
        ),
        Check(
            "two replication segments, at routers 10 and 16",
            places == {",".join(sorted(PLACES))},
            "; ".join(sorted(places)),
        ),
        Check(
            "the tree moves where it would fill more than 65 % of the link, and nowhere else",
            away == expected,
            ", ".join(f"{one}: {bool(gone)}" for one, gone in zip(shown, away, strict=True)),
        ),
        Check(
            "ours: it returns when the background ends; neither way loses a message or delivers one twice",
            min(at("back", engineered)) == 1
            and not any(at("loss % after", engineered) + at("twice", engineered)),
            f"{max(at('moves', engineered)):.0f} moves",
        ),
    ]


FIGURE = Figure("snaps-fig10", "a tree leaves a link that fills", RUNS, points, work, finish)
