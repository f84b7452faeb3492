"""Old copies of hosts' directories, the coordinator's among them, and of its database return under load.

In turn, at each host: the daemon is stopped and its directory copied, or it is copied while the daemon is
paused, as a snapshot of its file system; the daemon goes on for one or two runs; then it is killed, and the
copy is put in its place and started. The first host's directory has the coordinator's store in it. A second
site has its coordinator on PostgreSQL, whose dump is restored in the same way. Between the copy and its
return topics and queues begin at other hosts.

The oracle. A record that the copy, or another host, had just before the return must be at its offset at every
host in the end; another must lie in a loss that `treecast streams` names. A committed offset never falls. No
transactional producer is fenced. Topics and queues that began meanwhile are there. A message of MQTT or AMQP
may be missing only if it was on its way to, or kept by, a host while its copy grew old, and that host is
named.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .coordinated import CoordinatedSite
from .disk_load import PATIENCE_S, Place
from .disk_loss import losses_at, presence
from .old_copy_judge import Judged, Restored, judge_records
from .old_copy_load import CopyLoad, Groups, Messages
from .result import Options, Result
from .site import HostDaemon, Site, Worker, wait_for, workers

_READ_S = 60.0
_STAMP_S = 24.0  # within which a running daemon's directory and the coordinator have another stamp
KINDS = ("one run", "two runs", "while it ran")


@dataclass(frozen=True)
class Copied:
    """A copy of a host's directory. `at`: when (s, a steady clock). `ends`: of the partitions it leads."""

    host: str
    folder: Path
    at: float
    ends: dict[Place, int]


class Restoring:
    """The run on one site."""

    def __init__(self, site: Site, options: Options, folder: Path, result: Result) -> None:
        self.site = site
        self.options = options
        self.result = result
        self.restored: list[Restored] = []
        self.back_s: list[float] = []
        self._folder = folder
        self._rng = random.Random(options.seed)
        self._made = 0
        self.records = CopyLoad(site, options, folder, result)

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Runs the load, and stops its producers."""
        self.records.create_topics()
        topics = dict(self.records.topics)
        self.messages = Messages(self.site, self._folder, self.options)
        followers = [self.records.reader("follow", host) for host in self.site.names]
        self.producers = [self.records.producer(host, topic) for host, topic in topics.items()]
        self.groups = Groups(self.site, self._folder, topics)
        for number, file in self.groups.committed:
            self.records.note(file, number)
        everybody = [*followers, *self.producers, *self.groups.workers, *self.messages.workers]
        with workers(*everybody):
            wait_for(lambda: all(one.said.get("read", 0) > 100 for one in followers), "records", _READ_S)
            yield
            self._stop([*self.producers, *self.groups.workers])
            self.messages.stop_publishing(self.result)
            self.conclude()

    def _stop(self, clients: Sequence[Worker]) -> None:
        for one in clients:
            one.close_input()
        for one in clients:
            self.result.problems += one.result(PATIENCE_S).problems

    # --- a copy that grows old, and returns

    def restore_host(self, host: str, kind: str) -> None:
        daemon = self.site.daemons[host]
        copied = self._copy(daemon, kind)
        self._grow_old(host, _STAMP_S if kind == "while it ran" else 0.0)
        if kind == "two runs":
            daemon.kill()
            daemon.start()
            self._grow_old(host)
        floor = self.groups.acknowledged()
        daemon.kill()
        shutil.rmtree(daemon.data)
        shutil.copytree(copied.folder, daemon.data, symlinks=True)
        first = self.site.daemons[self.site.names[0]]
        if daemon is not first:  # until then the directory is refused: the other state may still run
            wait_for(lambda: presence(first, host) == "away", f"the lease of {host} to end", every=0.5)
        kept = self._kept(copied)
        begun = time.monotonic()
        self.restored.append(Restored(host, copied.at, begun, kept))
        daemon.start()
        self._settle(floor, f"{host}, {kind}")
        self.back_s.append(time.monotonic() - begun)

    def _copy(self, daemon: HostDaemon, kind: str) -> Copied:
        at, ends, folder = time.monotonic(), self._ends(daemon.host, daemon.host), self._folder / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        if kind == "while it ran":
            daemon.process.send_signal(signal.SIGSTOP)
            shutil.copytree(daemon.data, folder, symlinks=True)
            daemon.process.send_signal(signal.SIGCONT)
        else:
            daemon.stop()
            shutil.copytree(daemon.data, folder, symlinks=True)
            daemon.start()
        return Copied(daemon.host, folder, at, ends)

    def _grow_old(self, host: str, least: float = 0.0) -> None:
        """Lets the load go on, and makes a topic and a queue elsewhere, for `options.age` seconds."""
        until = time.monotonic() + max(self.options.age, least)
        others = [name for name in self.site.names if name != host]
        self.make_something(self._rng.choice(others or [host]))
        time.sleep(max(0.0, until - time.monotonic()))

    def make_something(self, leader: str) -> None:
        self._made += 1
        self.records.make_topic(f"later-{self._made}", leader, self._made)
        self.messages.declare(leader, f"later-{self._made}")

    def settle(self, floor: dict[str, int], what: str) -> None:
        self._settle(floor, what)

    def _settle(self, floor: dict[str, int], what: str) -> None:
        """Waits until everything is led and known again; no committed offset may be below `floor`."""
        for daemon in self.site.daemons.values():
            wait_for(lambda daemon=daemon: not self._lacking(daemon), f"all topics at {daemon.host}", 90, 0.5)
        self.result.problems += [f"{what}: {one}" for one in self.groups.backwards(floor)]

    def _lacking(self, daemon: HostDaemon) -> list[str]:
        """Returns the topics that are not known to, or not led for, a host."""
        there = {one["name"] for one in daemon.treecast("topics", "list")}
        waits = {one["topic"] for one in daemon.treecast("partitions", "list") if one["state"] != "led"}
        return [topic for topic in self.records.leaders if topic not in there or topic in waits]

    def _kept(self, copied: Copied) -> dict[Place, int]:
        kept = dict(copied.ends)
        for name in self.site.names:
            if name != copied.host:
                for place, end in self._ends(name, copied.host).items():
                    kept[place] = max(kept.get(place, 0), end)
        return kept

    def _ends(self, at: str, of: str) -> dict[Place, int]:
        """Returns how far host `at` has the partitions that host `of` leads."""
        led = [topic for topic, leader in self.records.leaders.items() if leader == of]
        found = [one for topic in led for one in self.site.daemons[at].treecast("partitions", "list", topic)]
        return {(one["topic"], one["partition"]): max(0, one["end"]) for one in found}

    # --- at the end

    def conclude(self) -> None:
        for daemon in self.site.daemons.values():
            missing = self.messages.unknown(daemon.host, [f"later-{n + 1}" for n in range(self._made)])
            self.result.problems += [f"{daemon.host}: {missing}"] if missing else []
        acks, losses = list(self.records.acks()), losses_at(self.site, self.result, resumed=False)
        judged: list[Judged] = []
        for host in self.site.names:
            judged.append(judge_records(acks, self.restored, losses, self.records.audited(host)))
            self._note(host, judged[-1])
        messages = self.messages.judged(self.restored, self.named(), self.result)
        for found in messages.values():
            for one in found:
                self._note("", one)
        self._rows(judged[-1], messages)

    def named(self) -> frozenset[str]:
        """Returns the hosts whose return on an older directory is named, as every host tells it."""
        first = self.site.daemons[self.site.names[0]]
        found = first.treecast("events", "--last", "10000")
        return frozenset(one["host"] for one in found if one["kind"] == "host older")

    def _note(self, who: str, judged: Judged) -> None:
        problems = [f"{who}: {problem}" if who else problem for problem in judged.problems]
        self.result.problems += problems[:10]
        if len(problems) > 10:
            self.result.problems.append(f"and {len(problems) - 10} more like the last")

    def _rows(self, records: Judged, messages: dict[str, list[Judged]]) -> None:
        result = self.result
        result.row("directories restored", len(self.restored))
        result.row("of them with the coordinator's store", self._coordinators())
        result.row("topics and queues that began meanwhile", self._made)
        result.row("records found at their offsets", records.found)
        result.row("records missing, and named", records.lost)
        for face, found in messages.items():
            result.row(f"{face} messages received", sum(one.found for one in found))
            result.row(f"{face} messages missing, and named", sum(one.lost for one in found))
        result.row("longest time until all was led again", f"{max(self.back_s, default=0.0):.1f} s")

    def _coordinators(self) -> int:
        return sum(one.host == self.site.names[0] for one in self.restored)


def old_copy(options: Options, folder: Path) -> Result:
    """Restores hosts' directories, the coordinator's second, and dumps of its database where it has one."""
    result = Result()
    dumps = options.count // 4
    hosts = options.count - dumps
    with Site(folder / "files", options.hosts, seed=options.seed, python=options.python, **_FACES) as site:
        run = Restoring(site, options, folder, result)
        order = [*site.names[1:2], *site.names[:1], *site.names[2:]]
        with run.load():
            for number in range(hosts):
                host = order[number % len(order)]
                kind = KINDS[(number + number // len(order)) % len(KINDS)]
                run.restore_host(host, kind)
                options.say(f"{number + 1}/{options.count}: {host} from a copy, {kind}")
    if dumps and not CoordinatedSite.possible():
        result.row("dumps of a database", "none: PostgreSQL is not installed")
    elif dumps:
        _dumps(options, folder / "database", result, dumps)
    return result


_FACES = {"mqtt": True, "amqp": True}


def _dumps(options: Options, folder: Path, result: Result, count: int) -> None:
    python = options.python
    with CoordinatedSite(folder, options.hosts, seed=options.seed, python=python, **_FACES) as site:
        run = Restoring(site, options, folder, result)
        with run.load():
            for number in range(count):
                dump = site.dump()
                run.make_something(site.names[number % len(site.names)])
                time.sleep(options.age)
                floor = run.groups.acknowledged()
                site.restore(dump)
                run.settle(floor, "the database's dump")
                options.say(f"dump {number + 1}/{count} restored")
        result.row("dumps of a database restored", count)
