"""Bursts: the number of copies on the origin's link, each receiver's speed, and the cost.

Each case has its own site: lossless links to a switch with snooping. An origin publishes as fast as its
daemon accepts, to readers at every other host: to a *fresh* topic, which they have just started to read, or
to a *standing* one, after some seconds of small records. Byte counts are those of the origin's interface
until every account is closed: live data, repairs, replays, heartbeats and channels. "Fetched": records
that hosts whose replicas are behind fetch from the leader by channels for their readers.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from itertools import product
from pathlib import Path
from statistics import median

from .burst_bare import bare, bare_small
from .burst_case import PURPOSES, Case, Outcome, measure
from .latency import percentile, within
from .result import Bursts, Options, Result

UNICAST, RELAY = "unicast", "relay"
_HOME = 0.15  # of the payload: reports that may enter the origin's zone
_AT_ORIGIN = 4  # copies that an origin sends at most by the carrier relay
_SLOW_RATE, _SLOW_LINK = 0.9, 1.3  # rate relative to the run without a slow receiver; copies with one
# from this many receivers on: rate relative to N copies, CPU relative to one receiver
_MANY, _FASTER, _MORE_CPU = 8, 2.0, 1.3
_OF_FLOOR = 0.9  # of the rate that the machine allows
_SMALL_WORSE = 2.0  # times the idle p99
_SMALL_OF_LOOP = 2.0  # times the loop's p99, if that misses the line above too
_SMALL_RECORDS = 500  # beside a burst; the p99 of fewer is decided by a handful
_PACKET = 1500
_BARE_MB = 400.0

RATES = ("case", "copies", "MB/s, least", "median", "s", "published in")
WAYS = ("live", "repaired", "replayed", "expired")
SENT = ("case", *PURPOSES, "fetched", "headers, rest")
COSTS = ("case", *WAYS, "stalled", "CPU s of origin", "all")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    one = parser.add_argument_group("burst")
    one.add_argument("--receivers", type=_integers, help="numbers of reading hosts: 2,8")
    one.add_argument("--mb", "--size-mb", type=_numbers, help="payload in 10^6 bytes: 100,1000")
    one.add_argument("--partitions", type=_integers, help="partitions of the topic: 1,8")
    one.add_argument("--kind", choices=("kafka", "mqtt", "both"))
    one.add_argument("--start", choices=("fresh", "standing", "both"))
    one.add_argument("--carrier", choices=("ip-multicast", RELAY, UNICAST))
    one.add_argument("--zones", type=int, help="zones with a router without multicast between them: 3")
    one.add_argument("--slow", type=float, help="one receiver's share of processor time: 0.1")
    one.add_argument("--batch", type=int, help="bytes of a Kafka record batch; 1 MB as with kcat")
    one.add_argument("--small", action="store_true", help="add a stream of 100 records/s")
    one.add_argument("--compare", action="store_true", help="also run one receiver and all by unicast")
    one.add_argument("--most", type=float, help="maximum copies per payload; by unicast for each receiver")


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


def chosen(given: argparse.Namespace) -> Bursts:
    values = {f.name: getattr(given, f.name, None) for f in fields(Bursts)}
    return Bursts(**{name: value for name, value in values.items() if value is not None})


def label(bursts: Bursts) -> str:
    """Returns a run's label for use in file names."""
    values = asdict(bursts).items()
    return "-".join(
        f"{name}{'+'.join(f'{v:g}' for v in value) if isinstance(value, tuple) else value}"
        for name, value in values
    )


def cases(bursts: Bursts) -> Iterator[list[Case]]:
    """Yields the cases to compare with each other; the requested one comes last."""
    kinds = ("kafka", "mqtt") if bursts.kind == "both" else (bursts.kind,)
    starts = ("fresh", "standing") if bursts.start == "both" else (bursts.start,)
    for kind, mb, partitions, start, receivers in product(
        kinds, bursts.mb, bursts.partitions, starts, bursts.receivers
    ):
        if kind == "mqtt" and partitions != bursts.partitions[0]:
            continue  # this kind has no such case
        partitions = 1 if kind == "mqtt" else partitions
        case = Case(receivers, mb, partitions, kind, start, bursts.carrier, 0.0, bursts.small, bursts.batch)
        case = replace(case, zones=bursts.zones)
        beside: list[Case] = []
        if bursts.compare:
            beside = [replace(case, receivers=1, carrier=UNICAST), replace(case, carrier=UNICAST)]
        if bursts.slow:
            beside.append(case)
            case = replace(case, slow=bursts.slow)
        yield [*beside, case]


def burst(options: Options, folder: Path) -> Result:
    result = Result()
    measured: list[Outcome] = []
    for number, group in enumerate(cases(options.burst)):
        found: dict[Case, list[Outcome]] = {case: [] for case in group}
        for at, case in enumerate(_turns(group, options.rounds if options.burst.compare else 1)):
            here = folder / f"{number}-{at}"
            outcome = measure(case, options, here, result)
            options.say(f"{case.name}: {outcome.copies:.2f} copies, {median(outcome.rates):.0f} MB/s")
            result.data[case.name] = outcome.as_json()
            found[case].append(outcome)
            measured.append(outcome)
            _judge(outcome, options, result)
            if not result.problems:
                shutil.rmtree(here, ignore_errors=True)  # logs in memory would take memory from the next case
        outcomes = list(found.values())
        if options.burst.compare:
            _beside_unicast(outcomes, options, result)
        if options.burst.slow:
            _beside_slow(outcomes[-2][-1], outcomes[-1][-1], options, result)
    _tables(measured, result)
    result.row("cases", len(measured))
    return result


def _turns(group: Sequence[Case], rounds: int) -> Iterator[Case]:
    """Yields each case once per round. Each round starts with another case, as the first finds more free
    memory."""
    for first in range(rounds):
        at = -first % len(group)
        yield from (*group[at:], *group[:at])


def _tables(outcomes: Sequence[Outcome], result: Result) -> None:
    rates = [
        (
            one.case.name,
            f"{one.copies:.2f}",
            *(f"{rate:.1f}" for rate in (one.rates[0], median(one.rates))),
            *(f"{seconds:.2f}" for seconds in (max(one.seconds.values()), one.produced)),
        )
        for one in outcomes
    ]
    result.table("bytes on the origin's link / payload, rates of receivers", RATES, rates)
    sent = [(one.case.name, *(f"{share:.2f}" for share in _shares(one))) for one in outcomes]
    zones = [
        (one.case.name, *(f"{size / one.payload:.2f}" for size in one.entered.values()))
        for one in outcomes
        if one.entered
    ]
    if zones:
        head = ("case", "the origin's", *(f"zone {number}" for number in range(2, len(zones[0]))))
        result.table("bytes into each zone / payload", head, zones)
    result.table("the link's bytes by purpose / payload", SENT, sent)
    costs = [
        (
            one.case.name,
            *(f"{one.delivered[way]:,}" for way in WAYS),
            str(one.stalled),
            *(f"{seconds:.2f}" for seconds in (one.origin_cpu, one.all_cpu)),
        )
        for one in outcomes
    ]
    result.table("records of all receivers by outcome, processor time of daemons", COSTS, costs)


def _shares(one: Outcome) -> list[float]:
    """Returns the shares of the link's bytes by purpose, and the rest."""
    found = [*(one.sent[what] / one.payload for what in PURPOSES), one.asked / one.payload]
    return [*found, one.copies - sum(found)]


def _judge(outcome: Outcome, options: Options, result: Result) -> None:
    case = outcome.case
    if case.small:
        _small(outcome, options, result)
    copies = {UNICAST: case.receivers, RELAY: min(_AT_ORIGIN, case.receivers)}.get(case.carrier, 1)
    most = options.burst.most * copies
    if case.slow:
        most = max(most, _SLOW_LINK)
    if case.carrier == RELAY:
        _zones(outcome, options, result)
    if options.judged and outcome.copies > most:
        result.problems.append(f"{case.name}: {outcome.copies:.2f} copies on the origin's link, not {most:g}")


def _zones(outcome: Outcome, options: Options, result: Result) -> None:
    """Reports a problem if more than one copy has entered a zone, or data has entered the origin's."""
    home, *others = outcome.entered.values()
    bounds = [(home, _HOME), *((size, options.burst.most) for size in others)]
    for (size, most), zone in zip(bounds, outcome.entered, strict=True):
        if size > most * outcome.payload:
            copies = size / outcome.payload
            result.problems.append(f"{outcome.case.name}: {copies:.2f} copies into {zone}, not {most:g}")


def _small(outcome: Outcome, options: Options, result: Result) -> None:
    """Reports the latencies of the small stream, and how much the burst raises them."""
    samples = sorted(outcome.samples)
    found = [within(samples, [window]) for window in outcome.windows]
    p50, p99 = ([percentile(one, percent) for one in found] for percent in (50, 99))
    rows = [
        (
            window.name,
            f"{len(one):,}",
            f"{at50:.2f}",
            f"{at99:.2f}",
            f"{at50 / p50[0]:.2f}",
            f"{at99 / p99[0]:.2f}",
        )
        for window, one, at50, at99 in zip(outcome.windows, found, p50, p99, strict=True)
    ]
    head = ("window", "records", "p50", "p99", "p50 x", "p99 x")
    result.table(f"{outcome.case.name}: latency of the small stream in ms", head, rows)
    result.data[outcome.case.name]["small"] = {"p50": p50, "p99": p99}
    most = _small_most(p99[0], outcome.rates[0])
    judged = options.judged and len(found[-1]) >= _SMALL_RECORDS
    if judged and not outcome.case.zones:
        most = max(most, _small_by_sockets(outcome, options, result))
    if judged and not p99[-1] <= most:
        result.problems.append(
            f"{outcome.case.name}: the small stream's p99 is {p99[-1]:.2f} ms, not {most:.2f}; "
            f"{p99[0]:.2f} idle"
        )


def _small_most(idle: float, rate: float) -> float:
    """The maximum p99 in ms beside a burst of `rate` MB/s."""
    return _SMALL_WORSE * idle + _PACKET / (rate * 1e3)


def _small_by_sockets(outcome: Outcome, options: Options, result: Result) -> float:
    """Reports the same small stream beside the same burst with plain sockets: as fast as they go, and with
    the daemons' processor time and batches. Returns the p99 in ms that this machine excuses: none if the loop
    with as much work does what is asked of the daemons."""
    case, kib = outcome.case, outcome.payload / 1024
    own = outcome.origin_cpu, (outcome.all_cpu - outcome.origin_cpu) / case.receivers
    rows, data = list[tuple[str, ...]](), dict[str, object]()
    excused = 0.0
    for name, work in (("sockets alone", None), ("as much work", (own[0] * 1e6 / kib, own[1] * 1e6 / kib))):
        loop = bare_small(case.receivers, case.mb, idle=options.phase, seed=options.seed, work=work)
        idle, beside = loop.p99
        most = _small_most(idle, loop.rate)
        for window, found, asked in (
            ("idle", loop.idle, ""),
            (f"burst, {loop.rate:.0f} MB/s", loop.beside, f"{most:.2f}"),
        ):
            rows.append((name, window, f"{percentile(found, 50):.2f}", f"{percentile(found, 99):.2f}", asked))
        data[name] = {"rate": loop.rate, "p99": loop.p99, "asked": most}
        excused = _SMALL_OF_LOOP * beside if work is not None and beside > most else 0.0
    head = ("processes", "window", "p50", "p99", "asked")
    result.table(f"{case.name}: the small stream in ms by plain sockets", head, rows)
    result.data[case.name]["bare small"] = data
    return excused


def _beside_unicast(outcomes: Sequence[Sequence[Outcome]], options: Options, result: Result) -> None:
    """Compares multicast with one receiver and with as many copies, as medians of the rounds."""
    one, copies, last = outcomes[0], outcomes[1], outcomes[2]
    name, receivers = last[0].case.name, last[0].case.receivers
    rows = [(runs[0].case.name, *(f"{value:.2f}" for value in _against(last, runs))) for runs in outcomes[:2]]
    result.table(f"{name}: relative to", ("case", "MB/s, median", "CPU of origin", "of all"), rows)
    result.data[name]["against"] = {runs[0].case.name: _against(last, runs) for runs in outcomes[:2]}
    if last[0].case.zones:
        return
    faster, cpu = _against(last, copies)[0], _against(last, one)[1]
    bare_faster, bare_cpu = _bare(last[0].case, options, result)
    free = _without_origin(last, copies)
    result.table(
        f"{name}: limits of this machine",
        ("bound", "times"),
        [
            ("rate of sockets alone, against as many copies", f"{bare_faster:.2f}"),
            ("rate if the origin cost nothing, against as many copies", f"{free:.2f}"),
            ("CPU of the origin of sockets alone, against one receiver", f"{bare_cpu:.2f}"),
        ],
    )
    if options.judged and receivers >= _MANY and last[0].case.carrier != UNICAST:
        least = min(_FASTER, _OF_FLOOR * bare_faster, _OF_FLOOR * free)
        if faster < least:
            result.problems.append(
                f"{name}: {faster:.2f} times the rate of {receivers} copies, not {least:.2f}"
            )
        most = max(_MORE_CPU, bare_cpu)
        if cpu > most:
            result.problems.append(f"{name}: {cpu:.2f} times the CPU of one receiver, not {most:.2f}")


def _without_origin(last: Sequence[Outcome], copies: Sequence[Outcome]) -> float:
    """Estimates the rate relative to copies without the origin's work, as all hosts share these cores."""
    receivers = median([one.all_cpu - one.origin_cpu for one in last])
    return median([one.all_cpu for one in copies]) / receivers


def _bare(case: Case, options: Options, result: Result) -> tuple[float, float]:
    """Measures plain sockets: the rate relative to as many copies, the origin's CPU relative to one
    receiver."""
    ways = ((case.receivers, True), (case.receivers, False), (1, False))
    loops = [bare(count, _BARE_MB, multicast=way, seed=options.seed) for count, way in ways]
    rows = [(one.name, f"{one.rate:.0f}", f"{one.origin_cpu:.2f}", f"{one.all_cpu:.2f}") for one in loops]
    result.table(
        f"{_BARE_MB:g} MB by sockets alone", ("loop", "MB/s of each", "CPU s of origin", "of all"), rows
    )
    result.data[case.name]["bare"] = {one.name: asdict(one) for one in loops}
    return loops[0].rate / loops[1].rate, loops[0].origin_cpu / loops[2].origin_cpu


def _against(ones: Sequence[Outcome], others: Sequence[Outcome]) -> tuple[float, float, float]:
    return (
        median([median(one.rates) for one in ones]) / median([median(other.rates) for other in others]),
        median([one.origin_cpu for one in ones]) / median([other.origin_cpu for other in others]),
        median([one.all_cpu for one in ones]) / median([other.all_cpu for other in others]),
    )


def _beside_slow(plain: Outcome, slow: Outcome, options: Options, result: Result) -> None:
    """Compares the other receivers' rates, and the link's bytes, with those of a run without a slow
    receiver."""
    share, name = median(slow.rates) / median(plain.rates), slow.case.name
    *_, last = slow.seconds
    rows = [
        ("median of the others, MB/s", f"{median(slow.rates):.1f}"),
        ("of their rate without a slow one", f"{share:.2f}"),
        ("each of the others, MB/s", " ".join(f"{rate:.0f}" for rate in slow.rates)),
        ("the slow one, MB/s", f"{slow.rate(last):.1f}"),
        ("copies until the others had everything", f"{slow.link_early / slow.payload:.2f}"),
        ("copies in all", f"{slow.copies:.2f}"),
    ]
    result.table(name, ("what", "value"), rows)
    result.data[name]["others"] = share
    if options.judged and share < _SLOW_RATE:
        result.problems.append(f"{name}: the others have {share:.2f} of their rate, not {_SLOW_RATE:g}")
