"""Each host in turn loses its disk repeatedly under load: records with a second copy are recovered, all
others named.

Each host leads a topic, has a producer of that topic and a reader that keeps its replicas going; one more
producer sends to all topics. Before every second loss the host is cut off for a moment, so that only its own
disk has some records. Then the daemon is killed, its directory removed, and the daemon started on an empty
one as the runbook says; if the host has the coordinator, its store is rebuilt first. Before the start all
other hosts are asked how far they have each partition of the lost host: records that one of them has must
stay.

The oracle. A record that was acknowledged before a loss, at an offset that another host had then, must be at
that offset at every host in the end. A record at a higher offset must lie in a loss that `treecast streams`
names. While a partition waits, `treecast streams --check` must not exit with 0.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .disk_load import PARTITIONS, PATIENCE_S, Ack, Load, Place
from .result import Options, Result
from .site import CONTROL, Amiss, HostDaemon, Site, wait_for, workers

_READ_S = 60.0
_CUT_S = 1.0
_ALIKE = 200  # records of a host that others may lack without a problem
_COPIED_S = 30.0


@dataclass(frozen=True)
class Loss:
    """A disk that was lost. Records acknowledged before `at` were acknowledged by its old daemon: nobody has
    led since the kill, however late its last replies arrive. `kept`: the end of the copies of its partitions
    at other hosts."""

    host: str
    at: float
    kept: Mapping[Place, int]


@dataclass
class Judged:
    """`lost`: records acknowledged and named as lost. `problems`: violations."""

    found: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)


def judge(
    acks: Iterable[Ack],
    losses: Sequence[Loss],
    named: Mapping[Place, Sequence[int]],
    records: Mapping[Place, Mapping[int, tuple[int, int]]],
) -> Judged:
    """Compares acknowledgements with the logs. `named`: the first offset of each loss named for a partition,
    oldest first. `records`: (producer, sequence) by offset, as a host has them at the end. Pure."""
    judged = Judged()
    of: dict[Place, list[Loss]] = {}
    for loss in losses:
        for place in loss.kept:
            of.setdefault(place, []).append(loss)
    for ack in acks:
        after = [number for number, loss in enumerate(of.get(ack.place, ())) if ack.at < loss.at]
        gone = [number for number in after if of[ack.place][number].kept[ack.place] <= ack.offset]
        if records.get(ack.place, {}).get(ack.offset) == (ack.producer, ack.sequence):
            judged.found += 1
        elif not gone:
            times = [loss.at for loss in of.get(ack.place, ())]
            judged.problems.append(f"{ack} is missing, though another host had it at each loss ({times})")
        elif _is_named(named.get(ack.place, ()), gone[0], ack.offset):
            judged.lost += 1
        else:
            judged.problems.append(f"{ack} is lost, and {named.get(ack.place, ())} do not name it")
    return judged


def _is_named(named: Sequence[int], number: int, offset: int) -> bool:
    return number < len(named) and named[number] <= offset


class Losing(Load):
    """The run."""

    def __init__(self, site: Site, options: Options, folder: Path, result: Result) -> None:
        super().__init__(site, options, folder, result)
        self.losses: list[Loss] = []
        # before each loss, the number of the host's records that no other host had
        self.behind: list[int] = []
        self.rebuilt_s: list[float] = []
        self._rng = random.Random(options.seed)

    # --- losing a disk

    def lose(self, host: str) -> None:
        daemon, link = self.site.daemons[host], self.site.link(host)
        number = len(self.losses)
        self.behind.append(self._behind(host))
        if (number + number // len(self.site.names)) % 2 == 0:
            link.cut()  # its own producer goes on: only this host has the records acknowledged now
            time.sleep(_CUT_S)
        daemon.kill()
        shutil.rmtree(daemon.data)
        link.heal()
        coordinates = host == self.site.names[0]
        other = self._other(host)
        if not coordinates:
            first = self.site.daemons[self.site.names[0]]
            wait_for(lambda: presence(first, host) == "away", f"the lease of {host} to end", every=0.5)
        kept = self._kept(host)
        if coordinates:
            token = self.site.daemons[other].data / "join-token"
            source = f"{self.site.lab.ipv4(other)}:{CONTROL}"
            words = ["--from", source, "--data", str(daemon.data), "--join-token", f"@{token}"]
            daemon.treecast("restore-coordinator", *words)
        begun = time.monotonic()
        self.losses.append(Loss(host, begun, kept))
        daemon.start()
        self._wait_until_led(host, other)
        self.rebuilt_s.append(time.monotonic() - begun)

    def _other(self, host: str) -> str:
        return self._rng.choice([name for name in self.site.names if name != host])

    def _kept(self, host: str) -> dict[Place, int]:
        """Returns how far other hosts have the partitions that `host` led."""
        kept = {(self.topics[host], number): 0 for number in range(PARTITIONS)}
        for name in self.site.names:
            if name != host:
                for place, end in self._ends(name, host).items():
                    kept[place] = max(kept[place], end)
        return kept

    def _behind(self, host: str) -> int:
        """Returns how many of its records no other host has, once earlier losers have caught up, or after a
        while."""
        with contextlib.suppress(Amiss):
            wait_for(lambda: self._lacked(host) <= _ALIKE, f"copies of what {host} has", _COPIED_S, 0.5)
        return max(0, self._lacked(host))

    def _lacked(self, host: str) -> int:
        """Returns how far others lag. Negative if others progressed between two queries."""
        return sum(self._ends(host, host).values()) - sum(self._kept(host).values())

    def _ends(self, at: str, of: str) -> dict[Place, int]:
        """Returns how far host `at` has the partitions that host `of` leads."""
        topic = self.topics[of]
        found = self.site.daemons[at].treecast("partitions", "list", topic)
        return {(topic, one["partition"]): one["end"] for one in found}

    def _wait_until_led(self, host: str, other: str) -> None:
        """Waits until the host itself and another see a leader; the check must fail while a partition
        waits."""
        topic = self.topics[host]
        waited = False

        def led() -> bool:
            nonlocal waited
            passed = _check(self.site.daemons[other], topic)
            states = [one["state"] for one in self.site.daemons[other].treecast("partitions", "list", topic)]
            waits = set(states) != {"led"}
            if passed and waited and waits:
                self.result.problems.append(f"`streams --check` ends with 0 while {topic} is {states}")
            waited = waits
            here = self.site.daemons[host].treecast("partitions", "list", topic)
            return not waits and all(one["state"] == "led" and one["end"] >= 0 for one in here)

        wait_for(led, f"{topic} to be led again", PATIENCE_S, 0.3)

    # --- at the end

    def named(self) -> dict[Place, list[int]]:
        return losses_at(self.site, self.result)


def losses_at(site: Site, result: Result, *, resumed: bool = True) -> dict[Place, list[int]]:
    """Returns the first offset of each loss, which `treecast streams` must name identically at every host.

    `resumed`: also where a log went on without a loss.
    """
    told: list[dict[Place, list[int]]] = []

    def alike() -> bool:
        """A host hears of a loss when its watch of the coordinator resumes."""
        told[:] = [_named_at(daemon, resumed) for daemon in site.daemons.values()]
        return all(one == told[0] for one in told)

    try:
        wait_for(alike, "all hosts to name the same losses", PATIENCE_S, 0.5)
    except Amiss as error:
        result.problems.append(f"{error}: {told}")
    return told[0]


def _named_at(daemon: HostDaemon, resumed: bool) -> dict[Place, list[int]]:
    found: dict[Place, list[int]] = {}
    for one in daemon.treecast("streams"):
        after = [*one.get("lost", ()), *(one.get("resumed", ()) if resumed else ())]
        if after:
            firsts = [lost["first"] for lost in sorted(after, key=lambda lost: lost["leader_epoch"])]
            found[one["topic"], one["partition"]] = firsts
    return found


def presence(daemon: HostDaemon, host: str) -> str:
    found: list[dict[str, Any]] = daemon.treecast("status")["hosts"]
    return next(str(one["presence"]) for one in found if one["name"] == host)


def _check(daemon: HostDaemon, topic: str) -> bool:
    """Returns whether `treecast streams --check` exits with 0."""
    code, _, _ = daemon._commands.run(["streams", topic, "--check"])
    return code == 0


def disk_loss(options: Options, folder: Path) -> Result:
    """Loses each host's disk in turn, the coordinator's second."""
    result = Result()
    with Site(folder, options.hosts, seed=options.seed, python=options.python) as site:
        run = Losing(site, options, folder, result)
        run.create_topics()
        followers = [run.reader("follow", host) for host in site.names]
        producers = [run.producer(host, topic) for host, topic in run.topics.items()]
        producers.append(run.producer(site.names[-1], *run.topics.values()))
        with workers(*followers, *producers):
            wait_for(
                lambda: all(one.said.get("read", 0) > 100 for one in followers), "records to flow", _READ_S
            )
            order = [*site.names[1:2], *site.names[:1], *site.names[2:]]
            for number in range(options.count):
                host = order[number % len(order)]
                time.sleep(run._rng.uniform(0.5, 3.0))
                run.lose(host)
                acked = sum(int(one.said.get("acked", 0)) for one in producers)
                lacked = f"{run.behind[-1]:,} of its records had no copy"
                options.say(
                    f"{number + 1}/{options.count}: the disk of {host} lost; {acked:,} acknowledged, {lacked}"
                )
            for producer in producers:
                producer.close_input()
            for producer in producers:
                result.problems += producer.result(PATIENCE_S).problems
            _conclude(run, result)
    return result


def _conclude(run: Losing, result: Result) -> None:
    site = run.site
    _accept(site.daemons[site.names[0]], result)
    for daemon in site.daemons.values():
        try:
            wait_for(lambda daemon=daemon: _check_all(daemon), f"the check at {daemon.host}", PATIENCE_S, 0.5)
        except Amiss as error:
            result.problems.append(f"{error}: {daemon.treecast('streams')}")
    acks, named = list(run.acks()), run.named()
    judged: Judged | None = None
    for host in site.names:
        judged = judge(acks, run.losses, named, run.audited(host))
        result.problems += [f"{host}: {problem}" for problem in judged.problems[:20]]
        if len(judged.problems) > 20:
            result.problems.append(f"{host}: and {len(judged.problems) - 20} more")
    assert judged is not None
    if not judged.lost:
        result.problems.append("every record had a copy, so the run did not test losses")
    result.row("disks lost", len(run.losses))
    result.row("disks with the coordinator's store", sum(one.host == site.names[0] for one in run.losses))
    result.row("records acknowledged", len(acks))
    result.row("records recovered", judged.found)
    result.row("records on the lost disk only, named as lost", judged.lost)
    result.row("maximum of records without a copy just before a loss", max(run.behind, default=0))
    result.row("longest time from start to led again", f"{max(run.rebuilt_s, default=0.0):.1f} s")


def _accept(daemon: HostDaemon, result: Result) -> None:
    """The check fails because of losses, until they are accepted."""
    if any(one.get("lost") for one in daemon.treecast("streams")) and _check_all(daemon):
        result.problems.append("`streams --check` ends with 0 although records are lost")
    code, _, error = daemon._commands.run(["partitions", "accept"])
    if code:
        result.problems.append(f"losses cannot be accepted: {error}")


def _check_all(daemon: HostDaemon) -> bool:
    code, _, _ = daemon._commands.run(["streams", "--check"])
    return code == 0
