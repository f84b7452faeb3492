"""Two hosts are cut off under load; one comes back, one never does, and the others must not notice."""

from __future__ import annotations

import time
from pathlib import Path

from .ends import SETTLE_S, account, end
from .pace import progress
from .result import Options, Result
from .site import Consuming, Producing, Site, wait_for, workers

TOPIC = "load"


def outage(options: Options, folder: Path) -> Result:
    """A host falls `behind` records behind and catches up; another stays away; a third one's latency."""
    result = Result()
    with Site(folder, 4, seed=options.seed, python=options.python) as site:
        first, steady, away, dead = site.names
        site.create_topic(TOPIC, 2, first)
        consumers = {host: Consuming(site, host, TOPIC, 2) for host in (steady, away, dead)}
        calm = Producing(site, first, TOPIC, 2, 1, size=100, rate=500)
        with workers(calm, *consumers.values()):
            wait_for(lambda: min(c.read for c in consumers.values()) > 1000, "all hosts to read")
            story = _Story(site, options, result, consumers[steady], consumers[away])
            heavy = story.tell(first, away, dead)
            end([calm, heavy], [consumers[steady], consumers[away]], result)
            account(site, result, without=(dead,))
    return result


class _Story:
    """The phases, one after the other, and the latency of the host that stays, in each."""

    def __init__(
        self, site: Site, options: Options, result: Result, steady: Consuming, away: Consuming
    ) -> None:
        self.site = site
        self.options = options
        self.result = result
        self.steady = steady
        self.away = away

    def tell(self, first: str, away: str, dead: str) -> Producing:
        """Answers the producer that made them fall behind."""
        site, options = self.site, self.options
        self._phase("all is well")
        site.link(away).cut()
        site.link(dead).cut()
        self._phase("two hosts are cut off")
        options.say(f"{options.behind:,} records while two hosts are cut off")
        heavy = Producing(site, first, TOPIC, 2, 2, size=100, count=options.behind)
        heavy.result(600)
        wait_for(
            lambda: self.steady.read >= options.behind + self.away.read,
            "the host that stays to read them",
            300,
        )
        lag = self.steady.read - self.away.read
        self.result.row("records that one host was behind", lag)
        if lag < options.behind:
            self.result.problems.append(f"the host that was cut off was only {lag} records behind")
        self._phase("two hosts still away, no load")
        begun = time.monotonic()
        site.link(away).heal()
        wait_for(lambda: self.away.read >= self.steady.read - 100, "the host to catch up", SETTLE_S)
        self._note("while one host catches up", begun)
        self.result.row("caught up after", f"{time.monotonic() - begun:.1f} s")
        self._phase("it has caught up")
        return heavy

    def _phase(self, name: str) -> None:
        begun = time.monotonic()
        progress(self.options, lambda: name, self.options.phase)
        self._note(name, begun)

    def _note(self, name: str, begun: float) -> None:
        median, worst = self.steady.latency(begun, time.monotonic())
        what = f"latency at a host that stays, {name}"
        self.result.row(what, f"{median:.1f} ms median, {worst:.1f} ms worst")
        self.result.data[name] = (median, worst)
