"""Inferred movements compared with the truth: a table, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.table import Table

from .city import PERIOD, PLACES, City, Trip
from .places import VNFS
from .tracker import Movement, places_of


class Found(Struct):
    """One VNF's result."""

    place: str
    published: int
    updates: int
    largest: int
    movements: list[Movement]


class Judged(Struct, frozen=True):
    """A VNF's movements against the truth. `error`: of speeds, mean, as a share."""

    found: Found
    trips: int  # that ended here
    right: int
    wrong: int
    error: float


def judge(found: Found, city: City) -> Judged:
    """Judges findings: a movement is right if that device made a trip in that direction."""
    true = {(trip.address, trip.origin): trip for trip in city.trips if trip.target == found.place}
    hits = [
        (one, true[one.address, one.origin]) for one in found.movements if (one.address, one.origin) in true
    ]
    errors = [abs(one.speed - trip.speed) / trip.speed for one, trip in hits]
    error = sum(errors) / len(errors) if errors else 0.0
    return Judged(found, len(true), len(hits), len(found.movements) - len(hits), error)


def table(judged: Sequence[Judged], counts: Mapping[str, Any]) -> Table:
    shown = Table(title="what each VNF inferred from its own and the others' states")
    for name in ("VNF", "host", "shared", "received", "largest", "trips", "found", "wrong", "speed off by"):
        shown.add_column(name, justify="left" if name in ("VNF", "host") else "right")
    hosts = places_of(VNFS)
    for one in judged:
        place, found = one.found.place, one.found
        shown.add_row(
            *(place, hosts[place], str(found.published), str(found.updates), f"{found.largest} B"),
            *(str(one.trips), str(one.right), str(one.wrong), f"{one.error:.1%}"),
        )
    if counts:
        shown.caption = (
            f"switch: {counts['replicas']} copies made of STARE's packets, "
            f"{counts['ingress_passes']} packets in all"
        )
    return shown


def draw(judged: Sequence[Judged], city: City, path: Path) -> None:
    """Draws, left, the street over time with true and inferred movements; right, their speeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (street, speeds) = pyplot.subplots(
        1, 2, figsize=(13, 6), width_ratios=(2, 1), layout="constrained"
    )
    for number, trip in enumerate(city.trips):
        label = "true way" if number == 0 else None
        street.plot(*_line(trip), color="0.8", linewidth=3, solid_capstyle="round", label=label)
    colours = dict(zip(PLACES, ("tab:blue", "tab:orange", "tab:green", "tab:red"), strict=True))
    true = {(trip.address, trip.origin, trip.target): trip for trip in city.trips}
    for one in judged:
        place = one.found.place
        for number, movement in enumerate(one.found.movements):
            label = f"inferred at {place}" if number == 0 else None
            street.plot(*_line(movement), color=colours[place], linewidth=0.9, label=label)
        hits = [m for m in one.found.movements if (m.address, m.origin, m.target) in true]
        speeds.scatter(
            [true[m.address, m.origin, m.target].speed for m in hits],
            [m.speed for m in hits],
            s=14,
            color=colours[place],
            label=f"at {place}",
        )
    street.set(
        xlabel="seconds",
        ylabel="metres along the street",
        title="ways between scanners",
        yticks=list(PLACES.values()),
        yticklabels=[f"{name}  {metres:g}" for name, metres in PLACES.items()],
        xlim=(0, city.reports * PERIOD),
    )
    street.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=5, frameon=False)
    top = 15.0
    speeds.plot((0, top), (0, top), color="0.8", zorder=0)
    speeds.set(
        xlabel="true speed, m/s", ylabel="inferred speed, m/s", title="speeds", xlim=(0, top), ylim=(0, top)
    )
    speeds.set_aspect("equal")
    speeds.legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _line(one: Trip | Movement) -> tuple[list[float], list[float]]:
    return [one.left, one.arrived], [PLACES[one.origin], PLACES[one.target]]
