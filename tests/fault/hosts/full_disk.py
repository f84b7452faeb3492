"""A host's disk fills under load, stays full for a while, and has room again.

Hosts have small file systems of their own; the first also holds the coordinator's store. Each is filled in
turn except for a small rest, which the load uses up: beside each host a Kafka producer writes to the topic
that it leads, and an MQTT publisher sends with QoS 1. Readers of all topics keep replicas at each host, and a
persistent session receives all messages there.

While the disk is full, the log has one line, and `treecast status` and `/readyz` report it; a produce to the
host's topic gets KAFKA_STORAGE_ERROR, and publishers are refused or wait. Work that does not need the host
goes on. When there is room again the host recovers by itself.

The oracle. Each acknowledged record is at its offset at every host in the end. Each acknowledged message has
reached every session. `treecast streams --check` exits with 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from .disk_load import PATIENCE_S, Ack, Load, Place
from .result import Options, Result
from .site import ADMIN, Amiss, HostDaemon, Site, Worker, wait_for, workers

MOUNTED, MIB = 2, 1 << 20
DISK_BYTES = 256 * MIB
LEFT_BYTES = 6 * MIB  # left for the load to fill
SAID, OVER = "refuses writes", "accepts writes again"
STORAGE_ERROR = 56
_READ_S = 60.0
_FULL_S = 4.0  # minimum time of a full disk
_MORE = 20  # records or messages that count as progress
_MOST_THAT_FIT = 20  # records of 100 kB, produced while the disk is full
_NOBODY = 1 << 31  # a producer number that nobody has
_LINES = 12  # maximum log lines of a host, from a full disk until it has caught up


@dataclass
class Judged:
    found: int = 0
    problems: list[str] = field(default_factory=list)


def records_of(
    acks: Sequence[Ack], records: Mapping[Place, Mapping[int, tuple[int, int]]], who: str
) -> Judged:
    """Checks that each acknowledged record is at its acknowledged offset. Pure."""
    judged = Judged()
    for ack in acks:
        if records.get(ack.place, {}).get(ack.offset) == (ack.producer, ack.sequence):
            judged.found += 1
        else:
            judged.problems.append(f"{who}: {ack} is not there")
    return judged


def messages_of(
    acked: Mapping[int, Set[int]], received: Mapping[int, Set[int]], sent: Mapping[int, int], who: str
) -> Judged:
    """Checks, by publisher, that each acknowledged message arrived and none arrived that nobody sent.
    Pure."""
    judged = Judged()
    for publisher in sorted(acked.keys() | received.keys()):
        got, wanted = received.get(publisher, set()), acked.get(publisher, set())
        judged.found += len(wanted & got)
        missing = sorted(wanted - got)
        strange = sorted(number for number in got if number >= sent.get(publisher, 0))
        if missing:
            judged.problems.append(
                f"{who}: {len(missing)} acknowledged messages of publisher {publisher} have not come, such as"
                f" {missing[:5]}"
            )
        if strange:
            judged.problems.append(f"{who}: nobody sent {strange[:5]} of publisher {publisher}")
    return judged


class SmallDisk:
    """A file system in memory at a host's data directory. It must exist before the host starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filling = folder / "filling"
        folder.mkdir(parents=True)
        options = f"size={DISK_BYTES}"
        mount = ["mount", "-t", "tmpfs", "-o", options, "treecast-full-disk", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Amiss(f"no file system can be mounted at {folder}: {done.stderr.strip()}")

    def fill(self, left: int) -> None:
        """Uses up all but `left` bytes."""
        found = os.statvfs(self.folder)
        with self._filling.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_frsize - left, 1))

    def free(self) -> None:
        self._filling.unlink()

    def close(self) -> None:
        """Unmounts the file system once no process uses it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=False)


class Messages:
    """The MQTT side of the load. Publishers have the numbers of their hosts."""

    def __init__(self, site: Site, folder: Path, options: Options) -> None:
        self.site = site
        self._folder = folder
        rate = options.rate / (2 * len(site.names))
        self.subscribers = {host: self._client(host, n, "subscribe") for n, host in enumerate(site.names)}
        wait_for(
            lambda: all(one.said.get("subscribed") for one in self.subscribers.values()),
            "all subscriptions",
            _READ_S,
        )
        limits = ("--rate", rate, "--size", options.size)
        self.publishers = {
            host: self._client(host, n, "publish", "--topic", f"full/{host}", *limits)
            for n, host in enumerate(site.names)
        }

    def _client(self, host: str, number: int, role: str, *more: object) -> Worker:
        words = [role, self.site.daemons[host].mqtt, self._file(role, host), "--number", number, *more]
        return Worker(self.site, host, "full_disk_mqtt.py", *words)

    def _file(self, role: str, host: str) -> Path:
        return self._folder / f"mqtt-{role}-{host}.txt"

    def acked(self, host: str) -> int:
        return int(self.publishers[host].said.get("acked", 0))

    def turned_away(self) -> dict[str, int]:
        """Returns the number of disconnections of publishers and subscribers, by reason."""
        found: dict[str, int] = {}
        for one in (*self.publishers.values(), *self.subscribers.values()):
            for reason, count in one.said.get("reasons", {}).items():
                found[reason] = found.get(reason, 0) + count
        return found

    def conclude(self, result: Result) -> int:
        """Ends the publishers, waits for the subscribers, and compares; returns the number of acknowledged
        messages."""
        sent: dict[int, int] = {}
        acked: dict[int, set[int]] = {}
        for publisher in self.publishers.values():
            publisher.close_input()
        for number, (host, publisher) in enumerate(self.publishers.items()):
            last = dict(publisher.said)
            result.problems += publisher.result(PATIENCE_S).problems
            lines = self._file("publish", host).read_text().splitlines()
            acked[number] = {int(line.split()[0]) for line in lines}
            sent[number] = max([int(last.get("sent", 0)), *(one + 1 for one in acked[number])])
        for host, subscriber in self.subscribers.items():
            with contextlib.suppress(Amiss):  # the comparison below reports missing messages
                wait_for(lambda host=host: not self._missing(host, acked), "messages", PATIENCE_S, 0.5)
            subscriber.close_input()
            subscriber.result(PATIENCE_S)
            result.problems += messages_of(acked, self._received(host), sent, host).problems
        return sum(len(numbers) for numbers in acked.values())

    def _missing(self, host: str, acked: Mapping[int, Set[int]]) -> bool:
        received = self._received(host)
        return any(numbers - received.get(publisher, set()) for publisher, numbers in acked.items())

    def _received(self, host: str) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for line in self._file("subscribe", host).read_text().split("\n"):
            publisher, _, number = line.partition(" ")
            if number:
                found.setdefault(int(publisher), set()).add(int(number))
        return found


class Filling(Load):
    """The run. `disks`: the file systems to fill, by host."""

    def __init__(
        self, site: Site, options: Options, folder: Path, result: Result, disks: Mapping[str, SmallDisk]
    ) -> None:
        super().__init__(site, options, folder, result)
        self.disks = disks
        self.times: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.further = 0  # acknowledged beside hosts with room while another host had none
        self.back_s: list[float] = []
        self._rng = random.Random(options.seed)

    def begin(self) -> None:
        size = self.options.size
        self.producers = {host: self.producer(host, topic, size=size) for host, topic in self.topics.items()}
        self.messages = Messages(self.site, self._folder, self.options)

    # --- a full disk, and its recovery

    def fill(self, host: str) -> None:
        daemon, disk = self.site.daemons[host], self.disks[host]
        self.times[host] = self.times.get(host, 0) + 1
        before = self._logged(host)
        disk.fill(LEFT_BYTES)
        wait_for(lambda: self._says(daemon), f"{host} to report a full disk", 120, 0.2)
        begun, others = time.monotonic(), self._others(host)
        self._look(daemon, full=True)
        self._produce_in_vain(host)
        self._await_more(lambda: self._others(host), f"what does not need {host}")
        time.sleep(max(0.0, begun + _FULL_S - time.monotonic()) + self._rng.uniform(0, 2))
        self._look(daemon, full=True)
        self.further += sum(self._others(host)) - sum(others)
        disk.free()
        begun = time.monotonic()
        wait_for(lambda: not self._says(daemon), f"{host} to report that there is room", 60, 0.2)
        self._look(daemon, full=False)
        self._await_more(lambda: self._here(host), f"the clients of {host}")
        self.back_s.append(time.monotonic() - begun)
        self._judge_log(host, before)

    def _await_more(self, how_far: Callable[[], list[int]], who: str) -> None:
        before = how_far()
        try:
            wait_for(
                lambda: all(now >= was + _MORE for was, now in zip(before, how_far(), strict=True)),
                f"{who} to go on",
                PATIENCE_S,
            )
        except Amiss as error:
            raise Amiss(f"{error}: acknowledged were {before}, and are {how_far()}") from None

    def _here(self, host: str) -> list[int]:
        """Returns the progress of clients that need the host."""
        return [int(self.producers[host].said.get("acked", 0)), self.messages.acked(host)]

    def _others(self, host: str) -> list[int]:
        """Returns the progress of clients that do not need it."""
        names = [name for name in self.site.names if name != host]
        kafka = [int(self.producers[name].said.get("acked", 0)) for name in names]
        return [*kafka, *(self.messages.acked(name) for name in names)]

    def _says(self, daemon: HostDaemon) -> bool:
        """Returns whether the status reports a full disk."""
        return any(SAID in problem for problem in daemon.treecast("status")["problems"])

    def _look(self, daemon: HostDaemon, *, full: bool) -> None:
        """Checks the host's status and pages; adds a problem if they disagree."""
        problems = daemon.treecast("status")["problems"]
        if any(SAID in problem for problem in problems) is not full:
            self.result.problems.append(f"the status of {daemon.host}, full: {full}, says {problems}")
        for path, wanted in (("readyz", 503 if full else 200), ("readyz?for=reads", 200), ("healthz", 200)):
            code, text = self._page(daemon, path)
            if code != wanted or (wanted == 503 and SAID not in text):
                self.result.problems.append(f"/{path} of {daemon.host}, full: {full}, is {code} {text!r}")

    def _page(self, daemon: HostDaemon, path: str) -> tuple[int, str]:
        code = (
            "import json, sys, urllib.request as u, urllib.error as e\n"
            "try: a = u.urlopen(sys.argv[1], timeout=30)\n"
            "except e.HTTPError as error: a = error\n"
            "print(json.dumps([a.status, a.read().decode()]))"
        )
        words = [self.site.client_python, "-c", code, f"http://{ADMIN}/{path}"]
        status, text = json.loads(self.site.lab.run(daemon.host, *words, timeout=60).stdout)
        return status, text

    def _produce_in_vain(self, host: str) -> None:
        """Produces without retries, beside the host and beside another."""
        other = self._rng.choice([name for name in self.site.names if name != host])
        for beside in (host, other):
            with contextlib.suppress(Amiss):
                code = 0
                for _ in range(_MOST_THAT_FIT):  # space that the log has reserved may hold some
                    code = code or self.produce_once(beside, self.topics[host])
                if code != STORAGE_ERROR:
                    self.result.problems.append(
                        f"a produce at {beside} to what {host} leads gets error {code}, not {STORAGE_ERROR}"
                    )

    def produce_once(self, beside: str, topic: str) -> int:
        """Returns Kafka's error code."""
        program = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from crash import wire\n"
            "from hosts.ledger import make_value\n"
            "connection = wire.Connection(sys.argv[2])\n"
            f"batch = wire.build_batch([(b'k', make_value({_NOBODY}, 0, 0.0, 100_000))])\n"
            "print(wire.produced(connection.ask(wire.produce(sys.argv[3], 0, batch)))[0])"
        )
        folder = str(Path(__file__).resolve().parents[1])
        words = [self.site.client_python, "-c", program, folder, self.site.daemons[beside].kafka, topic]
        return int(self.site.lab.run(beside, *words, timeout=60).stdout)

    # --- its log

    def _logged(self, host: str) -> list[str]:
        return self.site.daemons[host].log_path.read_text(errors="replace").splitlines()

    def _count(self, host: str, text: str) -> int:
        return sum(text in line and "the disk of" in line for line in self._logged(host))

    def _judge_log(self, host: str, before: Sequence[str]) -> None:
        new = self._logged(host)[len(before) :]
        self.lines[host] = self.lines.get(host, 0) + len(new)
        for text in (SAID, OVER):  # logged at once the first time, then rarely
            if not 1 <= self._count(host, text) <= self.times[host]:
                self.result.problems.append(f"{host} says {self._count(host, text)} times: {text!r}")
        if len(new) > _LINES:
            self.result.problems.append(
                f"{host} has logged {len(new)} lines while its disk was full: {new[:5]} ... {new[-5:]}"
            )


@contextlib.contextmanager
def small_disks(folder: Path, hosts: Sequence[str]) -> Iterator[dict[str, SmallDisk]]:
    """Mounts a small file system at each data directory of a site in `folder`."""
    with contextlib.ExitStack() as mounted:
        disks: dict[str, SmallDisk] = {}
        for host in hosts:
            disks[host] = SmallDisk(folder / host)
            mounted.callback(disks[host].close)
        yield disks


def full_disk(options: Options, folder: Path) -> Result:
    """Fills the disk of the second host and then that of the first, with the coordinator's store."""
    result = Result()
    names = [f"h{number}" for number in range(1, options.hosts + 1)][:MOUNTED]
    with (
        small_disks(folder, names) as disks,
        Site(
            folder,
            options.hosts,
            relayed=(),
            seed=options.seed,
            python=options.python,
            mqtt=True,
        ) as site,
    ):
        run = Filling(site, options, folder, result, disks)
        run.create_topics()
        followers = {host: run.reader("follow", host) for host in site.names}
        with workers(*followers.values()):
            run.begin()
            with workers(
                *run.producers.values(),
                *run.messages.publishers.values(),
                *run.messages.subscribers.values(),
            ):
                everybody = (*followers.values(), *run.messages.subscribers.values())
                wait_for(lambda: all(one.said.get("read", 0) > 100 for one in everybody), "a flow", _READ_S)
                for number in range(options.count):
                    host = names[(number + 1) % len(names)]
                    time.sleep(run._rng.uniform(0.5, 2.0))
                    run.fill(host)
                    options.say(
                        f"{number + 1}/{options.count}: the disk of {host} was full; {run.further:,} others"
                    )
                _conclude(run, result)
    return result


def _conclude(run: Filling, result: Result) -> None:
    reasons = run.messages.turned_away()
    for producer in run.producers.values():
        producer.close_input()
    for producer in run.producers.values():
        result.problems += producer.result(PATIENCE_S).problems
    messages = run.messages.conclude(result)
    for daemon in run.site.daemons.values():
        try:
            wait_for(lambda daemon=daemon: _checks(daemon), f"the check at {daemon.host}", PATIENCE_S, 0.5)
        except Amiss as error:
            result.problems.append(f"{error}: {daemon.treecast('streams')}")
    acks = list(run.acks())
    for host in run.site.names:
        judged = records_of(acks, run.audited(host), host)
        result.problems += judged.problems[:20]
        if len(judged.problems) > 20:
            result.problems.append(f"{host}: and {len(judged.problems) - 20} more")
    result.row("full disks", sum(run.times.values()))
    result.row("disks with the coordinator's store", run.times.get(run.site.names[0], 0))
    result.row("records acknowledged and present at every host", len(acks))
    result.row("messages acknowledged and delivered to every session", messages)
    result.row("of both, at hosts with room while another had none", run.further)
    result.row("lines in the logs of full hosts", sum(run.lines.values()))
    for reason, count in sorted(reasons.items()):
        result.row(f"MQTT clients disconnected: {reason}", count)
    result.row("longest time from room to progress", f"{max(run.back_s, default=0.0):.1f} s")


def _checks(daemon: HostDaemon) -> bool:
    """Returns whether `treecast streams --check` exits with 0."""
    code, _, _ = daemon._commands.run(["streams", "--check"])
    return code == 0
