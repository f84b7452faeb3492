"""The load of the scenario `old-copy`: three faces at every host, and what was acknowledged.

Beside each host: a Kafka producer and a transactional one, a group that commits, readers of all topics, a
publisher of QoS 1 and sessions that last, one of them away until the end, and an AMQP publisher, whose
messages go to two queues of the next host. A consumer beside a third host reads one of them; nobody reads the
other until the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath

from .disk_load import PARTITIONS, PATIENCE_S, Ack, Load, acks_of
from .old_copy_judge import Judged, Path, Restored, Sent, judge_messages
from .result import Options, Result
from .site import Amiss, Site, Worker, wait_for

_UP_S = 60.0
_TRANSACT, _SOME, _AWAY = 100, 200, 300  # numbers of producers and subscribers, beside those of Load


class Groups:
    """A group and a transactional id beside each host, which is their home."""

    def __init__(self, site: Site, folder: FilePath, topics: dict[str, str]) -> None:
        self.site = site
        self._folder = folder
        self._topics = dict(topics)
        self.committers = {host: self._client("commit", host, [topic]) for host, topic in topics.items()}
        self.transactions = {
            host: self._client("transact", host, list(topics.values()), _TRANSACT + n)
            for n, host in enumerate(site.names)
        }

    def _client(self, role: str, host: str, topics: list[str], number: int = 0) -> Worker:
        words = [role, self.site.daemons[host].kafka, self.file(role, host), "--group", f"{role}-{host}"]
        return Worker(self.site, host, "copy_client.py", *words, "--number", number, "--topics", *topics)

    def file(self, role: str, host: str) -> FilePath:
        return self._folder / f"{role}-{host}.txt"

    @property
    def committed(self) -> list[tuple[int, FilePath]]:
        """Each transactional producer's number and the file of its committed records."""
        hosts = enumerate(self.site.names)
        return [(_TRANSACT + number, self.file("transact", host)) for number, host in hosts]

    @property
    def workers(self) -> list[Worker]:
        return [*self.committers.values(), *self.transactions.values()]

    def acknowledged(self) -> dict[str, int]:
        """Returns the last acknowledged offset of each host's group."""
        files = {host: self.file("commit", host).read_text().splitlines() for host in self.site.names}
        return {host: int(lines[-1].split()[0]) for host, lines in files.items() if lines}

    def backwards(self, floor: dict[str, int]) -> list[str]:
        """Returns the groups whose committed offset is below an acknowledged one, as a host tells it."""
        found = []
        for host, offset in floor.items():
            told = self._committed(host)
            if told < offset:
                found.append(f"group commit-{host} has offset {told}, acknowledged was {offset}")
        return found

    def _committed(self, host: str) -> int:
        words = ["committed", self.site.daemons[host].kafka, "/dev/null", "--group", f"commit-{host}"]
        program = str(FilePath(__file__).with_name("copy_client.py"))
        command = [self.site.client_python, program, *words, "--topics", self._topics[host]]
        told: list[int] = []

        def answers() -> bool:
            done = self.site.lab.run(host, *command, timeout=90, check=False)
            if done.returncode == 0:
                told.append(int(json.loads(done.stdout)))
            return done.returncode == 0

        wait_for(answers, f"the home of commit-{host} to answer", PATIENCE_S, 0.5)
        return told[-1]


class Messages:
    """The ways of MQTT and AMQP messages."""

    def __init__(self, site: Site, folder: FilePath, options: Options) -> None:
        self.site = site
        self._folder = folder
        self._rate = options.rate / (10 * len(site.names))
        names = site.names
        self._next = {host: names[(n + 1) % len(names)] for n, host in enumerate(names)}
        for number, host in enumerate(names):
            self._go_away(host, _AWAY + number)
            self.declare(host, f"work-{host}", f"keep-{host}")
        self.subscribers = {host: self._mqtt("subscribe", host, n) for n, host in enumerate(names)}
        wait_for(
            lambda: all(one.said.get("subscribed") for one in self.subscribers.values()), "sessions", _UP_S
        )
        self.publishers = {
            host: self._mqtt("publish", host, n, "--topic", f"full/{host}", "--rate", self._rate)
            for n, host in enumerate(names)
        }
        self.producers = {host: self._publish(host, n) for n, host in enumerate(names)}
        self.consumers = {host: self._consume(host, f"work-{host}") for host in names}

    @property
    def workers(self) -> list[Worker]:
        mqtt = [*self.publishers.values(), *self.subscribers.values()]
        return [*mqtt, *self.producers.values(), *self.consumers.values()]

    # --- clients

    def _file(self, role: str, host: str) -> FilePath:
        return self._folder / f"messages-{role}-{host}.txt"

    def _mqtt(self, role: str, host: str, number: int, *more: object, file: str = "") -> Worker:
        words = [role, self.site.daemons[host].mqtt, self._file(file or role, host), "--number", number]
        return Worker(self.site, host, "full_disk_mqtt.py", *words, *more)

    def _go_away(self, host: str, number: int) -> None:
        """Leaves a session that lasts."""
        session = self._mqtt("subscribe", host, number, file="away")
        wait_for(lambda: session.said.get("subscribed"), f"a session at {host}", _UP_S)
        session.close_input()
        session.result(_UP_S)

    def declare(self, host: str, *queues: str) -> None:
        """Declares durable queues, whose home is the host."""
        done = self._queues(host, queues)
        if done:
            raise Amiss(f"queues {queues} cannot be declared at {host}: {done}")

    def unknown(self, host: str, queues: Sequence[str]) -> str:
        """Returns what a passive declare of the queues beside the host says; empty if all are there."""
        return self._queues(host, queues, "--passive") if queues else ""

    def _queues(self, host: str, queues: Sequence[str], *more: str) -> str:
        program = str(FilePath(__file__).with_name("copy_client.py"))
        words = ["declare", self.site.daemons[host].amqp, "/dev/null", *more, "--queues", *queues]
        done = self.site.lab.run(host, self.site.client_python, program, *words, timeout=90, check=False)
        return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""

    def _publish(self, host: str, number: int) -> Worker:
        home = self._next[host]
        words = ["publish", self.site.daemons[host].amqp, self._file("confirmed", host), "--number", number]
        queues = ["--queues", f"work-{home}", f"keep-{home}", "--rate", self._rate]
        return Worker(self.site, host, "copy_client.py", *words, *queues)

    def _consume(self, home: str, queue: str) -> Worker:
        """Consumes beside the host after the home."""
        beside = self._next[home]
        words = ["consume", self.site.daemons[beside].amqp, self._file(queue, "consumed")]
        return Worker(self.site, beside, "copy_client.py", *words, "--queues", queue)

    # --- at the end

    def stop_publishing(self, result: Result) -> None:
        for one in (*self.publishers.values(), *self.producers.values()):
            one.close_input()
        for one in (*self.publishers.values(), *self.producers.values()):
            result.problems += one.result(PATIENCE_S).problems

    def judged(
        self, restored: list[Restored], named: frozenset[str], result: Result
    ) -> dict[str, list[Judged]]:
        """Waits for what is outstanding, reads what nobody has read, and judges each way. By face."""
        names = self.site.names
        away = {host: self._mqtt("subscribe", host, _AWAY + n, file="away") for n, host in enumerate(names)}
        keep = {host: self._consume(host, f"keep-{host}") for host in names}
        try:
            self._wait_for_all(away, keep, restored, named)
        finally:
            for one in (*away.values(), *keep.values(), *self.subscribers.values(), *self.consumers.values()):
                one.close_input()
                result.problems += one.result(PATIENCE_S).problems
        return self._judge(restored, named)

    def _wait_for_all(
        self,
        away: dict[str, Worker],
        keep: dict[str, Worker],
        restored: list[Restored],
        named: frozenset[str],
    ) -> None:
        def complete() -> bool:
            judged = self._judge(restored, named)
            return not any(one.problems for of in judged.values() for one in of)

        try:
            wait_for(complete, "messages", _UP_S, 1.0)
        except Amiss:
            return  # the last judgement says which

    def _judge(self, restored: list[Restored], named: frozenset[str]) -> dict[str, list[Judged]]:
        found: dict[str, list[Judged]] = {"MQTT": [], "AMQP": []}
        for number, host in enumerate(self.site.names):
            sent = list(_sent(self._file("publish", host)))
            for other in self.site.names:
                for role in ("subscribe", "away"):
                    way = Path(f"MQTT {role} {host} to {other}", (host, other))
                    got = _received(self._file(role, other), number)
                    found["MQTT"].append(judge_messages(way, sent, got, restored, named))
            home = self._next[host]
            got = _received(self._file(f"work-{home}", "consumed"), number)
            got |= _received(self._file(f"keep-{home}", "consumed"), number)
            way = Path(f"AMQP {host} to queues of {home}", (host, home))
            sent = list(_sent(self._file("confirmed", host)))
            found["AMQP"].append(judge_messages(way, sent, got, restored, named))
        return found


def _sent(file: FilePath) -> Iterator[Sent]:
    for line in file.read_text().splitlines():
        number, at = line.split()
        yield Sent(int(number), float(at))


def _received(file: FilePath, publisher: int) -> set[int]:
    if not file.exists():
        return set()
    # the last line may be half written
    rows = [line.split() for line in file.read_text().split("\n")[:-1]]
    return {int(number) for who, number in rows if int(who) == publisher}


class CopyLoad(Load):
    """Records, with those of transactions, and of topics that began after a copy was made."""

    def __init__(self, site: Site, options: Options, folder: FilePath, result: Result) -> None:
        super().__init__(site, options, folder, result)
        self.leaders = {topic: host for host, topic in self.topics.items()}
        self._more: list[tuple[FilePath, int]] = []

    def note(self, file: FilePath, number: int) -> None:
        """Counts the acknowledgements of `file` in, from producer `number`."""
        self._more.append((file, number))

    def make_topic(self, name: str, leader: str, number: int) -> None:
        """Makes a topic with some acknowledged records."""
        self.site.create_topic(name, PARTITIONS, leader)
        self.topics[name] = name
        self.leaders[name] = leader
        file = self._folder / f"{name}.txt"
        words = ["some", self.site.daemons[leader].kafka, str(file), "--topics", name]
        program = str(FilePath(__file__).with_name("copy_client.py"))
        said = ["--number", str(_SOME + number)]
        self.site.lab.run(leader, self.site.client_python, program, *words, *said, timeout=180)
        self.note(file, _SOME + number)

    def acks(self) -> Iterator[Ack]:
        yield from super().acks()
        for file, number in self._more:
            yield from acks_of(file, number)
