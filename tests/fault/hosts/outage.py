"""Two hosts are cut off under load; one comes back, one never does, and the others must not be affected.

A round: normal operation; the hosts are cut off; `behind` records come; no more records come; one host is
back and catches up; it has caught up. A slow, steady producer runs all the time, and the measurement is the
latency of its records at readers at the leader and at another host. After each round come windows of the same
lengths without any event (`latency`).

Real hosts have their own cores; here they share two. So where times are judged, the leader keeps to one core,
the readers and the remaining host have priority wherever they run (`cores`), and all other processes use the
rest of the other core. Otherwise the measurement would be the wait for a core beside a host that catches up.
Cores are also kept from halting, as a virtual machine waits for its hypervisor whenever a halted one is to
resume.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.core.awake import awake

from .cores import Place, halves, keep_to
from .ends import SETTLE_S, account, end
from .latency import HEAD, Watched, Window
from .pace import progress
from .result import Options, Result
from .site import Consuming, Producing, Site, wait_for, workers

TOPIC = "load"
CALM, CUT, LOAD, AWAY, BACK, AFTER = (
    "all is well",
    "two hosts cut off",
    "load meanwhile",
    "both still away",
    "one catches up",
    "it has caught up",
)


def outage(options: Options, folder: Path) -> Result:
    """One host falls `behind` records behind and catches up, another stays away; the others' latencies are
    measured."""
    result = Result()
    with (
        awake(options.judged),
        halves(options.judged) as (own, rest),
        Site(folder, 4, relayed=("h3", "h4"), seed=options.seed, python=options.python) as site,
    ):
        first, steady, away, dead = site.names
        site.create_topic(TOPIC, 2, first)
        watching = [Consuming(site, host, TOPIC, 2, watched=1) for host in (first, steady)]
        others = [Consuming(site, host, TOPIC, 2) for host in (away, dead)]
        calm = Producing(site, first, TOPIC, 2, 1, size=100, rate=500)

        def seat(resting: bool) -> None:
            """Gives readers priority at once, unless none rests, as where the load comes.

            The host that stays replays to the one that is back, so its daemon does not rest either; its
            reader does not wait for it.
            """
            if not own:
                return
            leader, reader = (Place.SHARED, Place.FIRST) if resting else (Place.SOON, Place.SOON)
            watcher = Place.AT_ONCE if resting else Place.SOON
            keep_to(own, [site.daemons[first].process.pid], leader)
            keep_to(own, [calm.process.pid], Place.SOON)
            keep_to(own, [watching[0].process.pid], reader)
            keep_to(rest, [site.daemons[steady].process.pid], watcher)
            keep_to(rest, [watching[1].process.pid], reader)

        with workers(calm, *watching, *others):
            seat(True)
            wait_for(lambda: min(c.read for c in (*watching, *others)) > 1000, "all hosts to read")
            story = _Story(site, options, result, watching, others[0], seat)
            loads = [story.round(number, first, away, dead) for number in range(options.rounds)]
            end([calm, *loads], [*watching, others[0]], result)
            account(site, result, without=(dead,))
            story.conclude()
    return result


class _Story:
    """The windows of each round, and the latencies of the remaining hosts in them."""

    def __init__(
        self,
        site: Site,
        options: Options,
        result: Result,
        watching: Sequence[Consuming],
        away: Consuming,
        seat: Callable[[bool], None],
    ) -> None:
        self.site = site
        self.options = options
        self.result = result
        self.watching = watching
        self.steady = watching[-1]
        self.away = away
        self.seat = seat
        self.outages: list[list[Window]] = []
        self.controls: list[list[Window]] = []

    def round(self, number: int, first: str, away: str, dead: str) -> Producing:
        """Runs a round; returns the producer that made the hosts fall behind."""
        site, options, windows = self.site, self.options, list[Window]()
        self._phase(windows, CALM)
        site.link(away).cut()
        site.link(dead).cut()
        self._phase(windows, CUT)
        options.say(f"{options.behind:,} records while two hosts are cut off")
        load = Producing(site, first, TOPIC, 2, 2 + number, size=100, count=options.behind)
        before = self.steady.read
        self.seat(False)
        with self._window(windows, LOAD), workers(load):
            load.result(600)
            wait_for(
                lambda: self.steady.read >= before + options.behind, "the remaining host to read them", 300
            )
        self._check_lag(number)
        self.seat(True)
        self._phase(windows, AWAY)
        with self._window(windows, BACK):
            site.link(away).heal()
            wait_for(lambda: self.away.read >= self.steady.read - 100, "the host to catch up", SETTLE_S)
        self.result.row(f"outage {number + 1}: caught up after", f"{windows[-1].seconds:.1f} s")
        self._phase(windows, AFTER)
        self.outages.append(windows)
        if options.judged:
            self.controls.append(self._control(windows))
        return load

    def _check_lag(self, number: int) -> None:
        lag = self.steady.read - self.away.read
        self.result.row(f"outage {number + 1}: records that one host was behind", lag)
        if lag < self.options.behind:
            self.result.problems.append(f"the host that was cut off was only {lag} records behind")

    def _control(self, windows: Sequence[Window]) -> list[Window]:
        """Runs windows of the same lengths without any event. The load's own window is skipped, as nothing
        comes in it."""
        found = list[Window]()
        for window in windows:
            with self._window(found, window.name):
                progress(self.options, partial(str, f"control: {window.name}"), window.seconds)
        return found

    def _phase(self, windows: list[Window], name: str) -> None:
        with self._window(windows, name):
            progress(self.options, lambda: name, self.options.phase)

    @contextlib.contextmanager
    def _window(self, windows: list[Window], name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        windows.append(Window(name, begun, time.monotonic()))

    def conclude(self) -> None:
        """Makes the table; where times are judged, a window that stands out is a problem."""
        for one in self.watching:
            watched = Watched(one.host, one.samples, self.outages, self.controls)
            title = f"end-to-end latency at {one.host} in ms, and x times that of its calm window"
            self.result.table(title, HEAD, list(watched.rows()))
            if self.options.judged:
                self.result.problems += watched.effects(but=(LOAD,))
