"""Table IV of the STARE paper: the packets that six approaches need to bring one state to 16 subscribers.

Lotfimahyari and others, "Data plane assisted state replication with Network Function Virtualization", IEEE
Systems Journal 2022. Packets are forwarded through 85 emulated switches and counted on their links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..figure import Check, Figure, Options, Plot, Result, Row, Task, mean, value
from .tree import CASES, ETHERNET, PAIR_SIZE, SUBSCRIBERS, VALUE, Load, Site, network_of

# In-net and out-net, best then worst case, as printed.
PAPER: dict[str, tuple[int, int, int, int]] = {
    "Unicast": (32, 17, 96, 17),
    "Broadcast": (84, 85, 84, 85),
    "ALM": (20, 59, 26, 67),
    "OFM": (20, 17, 26, 17),
    "P4 source routing": (20, 17, 26, 17),
    "STARE": (20, 17, 26, 17),
}
LABELS = {"best": (16, 20, 18.0), "worst": (16, 24, 18.75)}  # least, most, mean on the tree's links
COLUMNS = ("approach", "case", "in-net", "paper in", "out-net", "paper out", "labels", "header B", "KB")
_UNICAST, _TREE = "Unicast", 24
_PLAIN = ETHERNET + 20 + 8 + len(VALUE)  # IPv4 and UDP
_COUNT = 2


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(name,) for name in PAPER]


def work(options: Options, task: Task) -> list[Row]:
    from .approaches import APPROACHES  # loads P4Runtime's stubs, which other figures don't need

    name = task.point[0]
    approach = APPROACHES[name]()
    return [_measure(name, approach.site, approach.publish, case) for case in CASES]


def _measure(name: str, site: Site, publish: Callable[[str], None], case: str) -> Row:
    load, paper = Load(site), PAPER[name]
    publish(case)
    inside, outside = load.read()
    came = site.take()
    packets = sum(count for count, _ in inside)
    at = 0 if case == "best" else 2
    labels = [(size - _PLAIN - _COUNT) / PAIR_SIZE for _, size in inside] if "source" in name else []
    return {
        "approach": name,
        "case": case,
        "in-net": packets,
        "paper in": paper[at],
        "out-net": sum(count for count, _ in outside),
        "paper out": paper[at + 1],
        "labels": mean(labels),
        "header B": (sum(size for _, size in inside) / packets) - len(VALUE),
        "KB": sum(size for _, size in inside) / 1000,
        "least labels": min(labels, default=0),
        "most labels": max(labels, default=0),
        "receivers": sum(len(came.get(host, ())) == 1 for host in site.subscribers),
        "others": sum(len(frames) for host, frames in came.items() if host not in site.subscribers),
    }


def finish(options: Options, rows: list[Row]) -> Result:
    switches = network_of()
    notes = [
        f"{len(switches.switches)} switches, {len(switches.switches) - 1} links between them, hosts on each; "
        f"packets were forwarded by P4 programs. header B: mean over the tree's links, Ethernet's {ETHERNET} "
        f"with them; KB: on the tree's links; a state of {len(VALUE)} bytes",
        "the 16 subscribers are on the leaves below one child of the root; best: the publisher is on that "
        "child, worst: on a leaf below another. Of all placements only these fit what the paper prints, but "
        "for two numbers:",
        "in-net, worst, 26: the tree has 24 links. ALM's 67 says so (17 + 2 for each of 25 switches), and "
        "so do the 24 labels and their mean of 18.75; a tree of 26 links would make ALM's 71",
        "Unicast's out-net, 17: the publisher sends once for each subscriber, 16 and 16; 17 would be if its "
        "own link carried one packet for all",
    ]
    plots = (Plot("case", "messages", "approach", kind="bars", stacked=("in-net", "out-net")),)
    title = "messages to bring a state to 16 subscribers"
    return Result(
        "stare-table4", title, COLUMNS, rows, _checks(rows), notes, plots, {"value bytes": len(VALUE)}
    )


def _checks(rows: list[Row]) -> list[Check]:
    return [_delivered(rows), _in_net(rows), _out_net(rows), *_labels(rows), _least(rows), _fixed(rows)]


def _delivered(rows: list[Row]) -> Check:
    wrong = [
        f"{row['approach']} {row['case']}: {row['receivers']}, {row['others']}"
        for row in rows
        if row["receivers"] != SUBSCRIBERS or bool(row["others"]) != (row["approach"] == "Broadcast")
    ]
    seen = "; ".join(wrong) or f"{SUBSCRIBERS} hosts; broadcast reaches {rows[2]['others']} others too"
    return Check("each subscriber gets one copy, and nobody else any but by broadcast", not wrong, seen)


def _in_net(rows: list[Row]) -> Check:
    off = {row["in-net"] for row in rows if row["in-net"] != row["paper in"]}
    printed = {row["paper in"] for row in rows if row["in-net"] != row["paper in"]}
    return Check(
        "in-net messages are the paper's, but for the worst case's tree: 24 links where 26 are printed",
        (off, printed) == ({_TREE}, {26}),
        f"{sorted(off)} where {sorted(printed)} are printed",
    )


def _out_net(rows: list[Row]) -> Check:
    off = {row["approach"]: row["out-net"] for row in rows if row["out-net"] != row["paper out"]}
    return Check(
        "out-net messages are the paper's, but for Unicast's: 32 where 17 are printed",
        off == {_UNICAST: 2 * SUBSCRIBERS},
        f"{off}",
    )


def _labels(rows: list[Row]) -> list[Check]:
    found = []
    for case, (least, most, average) in LABELS.items():
        [row] = [one for one in rows if one["approach"] == "P4 source routing" and one["case"] == case]
        seen = (row["least labels"], row["most labels"], row["labels"])
        found.append(
            Check(
                f"{case}: {least} to {most} labels on links, {average:g} on average",
                seen == (least, most, average),
                f"{seen[0]:g} to {seen[1]:g}, {seen[2]:g} on average ({seen[2] * PAIR_SIZE:g} B)",
            )
        )
    return found


def _least(rows: list[Row]) -> Check:
    least = {case: min(row["in-net"] for row in rows if row["case"] == case) for case in CASES}
    minimal = [
        name
        for name in PAPER
        if all(value(rows, "in-net", approach=name, case=case) == least[case] for case in CASES)
    ]
    wanted = {"STARE", "P4 source routing", "OFM"}
    return Check(
        "STARE, P4 source routing and OFM use each link of the tree once",
        wanted <= set(minimal),
        str(minimal),
    )


def _fixed(rows: list[Row]) -> Check:
    found = {row["header B"] - ETHERNET for row in rows if row["approach"] == "STARE"}
    return Check("STARE's overhead is 36 bytes on every link", found == {36.0}, f"{sorted(found)}")


FIGURE = Figure("stare-table4", "messages for 16 subscribers, six approaches", 1, points, work, finish)
