"""Exactly-once copies by members of the new group protocol (KIP-848), some of which are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.quick_groups import quick_groups
from tests.clients.reader import Source

pytestmark = pytest.mark.clients
HERE = Path(__file__).parent
PARTITIONS = 6
TEAM = 3
SOME = 100  # records that count as progress
JAVA = ("-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")
FENCED = 3


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """A daemon that reassigns the partitions of a silent member soon."""
    with quick_groups(tmp_path_factory.mktemp("once"), session_timeout_ms=2000) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def kafka(daemon):
    return daemon.kafka


@pytest.fixture(params=["librdkafka", "Java"])
def copier(request, tmp_path_factory):
    """The command that runs a copier; arguments are appended."""
    if request.param == "librdkafka":
        return [sys.executable, str(HERE / "copier.py")]
    jars = request.getfixturevalue("kafka_jars")
    compiler = request.getfixturevalue("require_tool")("javac")
    folder = tmp_path_factory.mktemp("copier")
    source = HERE / "java" / "Copier.java"
    command = [compiler, "-encoding", "UTF-8", "-cp", jars, "-d", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return ["java", *JAVA, "-cp", f"{folder}:{jars}", "Copier"]


class Copier:
    """One process, with a count of the records it has copied."""

    def __init__(self, words, name):
        self.name = name
        self.copied = 0
        self.said = []
        self.process = subprocess.Popen(
            [*words, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read, name=f"what {name} says", daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if line.startswith("copied "):
                self.copied += int(line.split()[1])

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait(30)
        self._thread.join(30)
        self.process.stdout.close()


class Team:
    """Copiers of one group. A copier that ends because it was fenced is replaced under its own name."""

    def __init__(self, words, unique, until):
        self._words, self._unique, self._until = words, unique, until
        self.living: list[Copier] = []
        self.former: list[Copier] = []

    def join(self, name=""):
        self.living.append(Copier(self._words, name or self._unique("copier")))
        return self.living[-1]

    def kill(self, copier):
        self.living.remove(copier)
        self.former.append(copier)
        copier.kill()

    def look_after(self):
        for copier in list(self.living):
            if copier.process.poll() is not None:
                assert copier.process.returncode == FENCED, copier.said
                self.kill(copier)
                self.join(copier.name)

    def go_on(self, *, waiting_for=()):
        """Waits until each live copier has copied more, except those that are stopped."""
        before = {copier: copier.copied for copier in self.living if copier not in waiting_for}

        def done():
            self.look_after()
            return all(
                copier not in self.living or copier.copied > at + SOME for copier, at in before.items()
            )

        self._until(done, what="everyone to go on")

    def stop(self):
        for copier in list(self.living):
            self.kill(copier)


def test_a_copy_by_members_that_are_killed_is_exact(copier, daemon, kafka, unique, until, read_all):
    source, target, group = unique("source"), unique("target"), unique("group")
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in (source, target)]).values():
        made.result(30)
    feed = Source(kafka, source, PARTITIONS)
    team = Team([*copier, kafka, source, target, group], unique, until)
    try:
        for _ in range(TEAM):
            team.join()
        team.go_on()

        def members():
            team.look_after()
            return admin.describe_consumer_groups([group])[group].result(30).members

        # It comes back and aborts its own transaction.
        killed = team.living[0]
        team.kill(killed)
        team.join(killed.name)
        team.go_on()

        # Its transaction stays open until its time-out; nobody can read its partitions before.
        team.kill(team.living[0])
        team.join()
        team.go_on()

        # It believes that it is still a member, although others have had its partitions.
        stopped = team.living[0]
        stopped.signal(signal.SIGSTOP)
        until(lambda: len(members()) == TEAM - 1, what="the stopped one to be removed")
        team.go_on(waiting_for=[stopped])
        stopped.signal(signal.SIGCONT)
        until(lambda: len(members()) == TEAM, what="it to be back")
        team.go_on()

        daemon.kill()
        daemon.restart()
        team.go_on()

        fresh = AdminClient({"bootstrap.servers": kafka})
        assert fresh.describe_consumer_groups([group])[group].result(30).type is ConsumerGroupType.CONSUMER
        feed.stop()
        assert feed.faults == []

        def whole():
            team.look_after()
            return len(read_all(target, "read_committed")) >= len(feed.sent)

        until(whole, what="all records to be copied")
    finally:
        feed.stop()
        team.stop()
        for one in team.former:
            print(f"--- {one.name}: {one.said[-20:]}", file=sys.stderr)
    copied = Counter(record.sample.value.decode() for record in read_all(target, "read_committed"))
    assert copied == Counter(f"{partition}:{offset}" for partition, offset in feed.sent)
