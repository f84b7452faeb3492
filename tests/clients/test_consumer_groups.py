"""The new group protocol (KIP-848) by confluent-kafka (librdkafka), unmodified: `group.protocol=consumer`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.quick_groups import quick_groups
from tests.clients.reader import Account, Reader, Source

pytestmark = pytest.mark.clients
PARTITIONS = 6
NEW = {"group.protocol": "consumer"}
EAGER = {"partition.assignment.strategy": "range"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with quick_groups(tmp_path_factory.mktemp("groups")) as daemon:
        yield daemon


@pytest.fixture
def address(daemon):
    return daemon.kafka


@pytest.fixture
def groups_admin(daemon):
    return AdminClient({"bootstrap.servers": daemon.kafka})


@pytest.fixture
def topic(groups_admin, unique):
    name = unique("t")
    groups_admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(30)
    return name


@pytest.fixture
def team(address, unique, topic):
    """Returns a team: `team.join(**how)` makes a reader; all share one group and account, and are stopped at
    the end."""

    class Team:
        def __init__(self) -> None:
            self.group = unique("g")
            self.account: Account = Counter()
            self.lock = threading.Lock()
            self.readers: list[Reader] = []
            self.all: list[Reader] = []

        def join(self, topics=(), **how) -> Reader:
            reader = Reader(address, self.group, topics or [topic], self.account, self.lock, **how)
            self.readers.append(reader)
            self.all.append(reader)
            return reader

        def leave(self, reader: Reader) -> None:
            self.readers.remove(reader)
            reader.stop()

        def shared(self, partitions: int = PARTITIONS) -> bool:
            """Returns whether every partition has one reader, and readers have similar numbers of
            partitions."""
            held = [place for reader in self.readers for place in reader.assigned]
            sizes = [len(reader.assigned) for reader in self.readers]
            return len(held) == len(set(held)) == partitions and max(sizes) - min(sizes) <= 1

        def faults(self) -> list[str]:
            return [fault for reader in self.all for fault in reader.faults]

    team = Team()
    yield team
    for reader in list(team.readers):
        team.leave(reader)


def described(admin, group):
    return admin.describe_consumer_groups([group])[group].result(30)


def once(team, source, until) -> None:
    """Waits until all sent records have been read, and checks that none was read twice."""
    source.stop()
    until(lambda: team.account.keys() >= source.sent.keys(), what="the last record")
    assert source.faults == []
    assert team.faults() == []
    twice = {place: times for place, times in team.account.items() if times > 1}
    assert twice == {}
    assert team.account.keys() == source.sent.keys()


def test_members_share_and_nothing_is_read_twice(team, topic, address, until, groups_admin):
    source = Source(address, topic, PARTITIONS)
    first = team.join(**NEW)
    until(team.shared, what="one member to have all")
    team.join(**NEW)
    team.join(**NEW)
    until(team.shared, what="three members to share")
    group = described(groups_admin, team.group)
    assert (group.type, group.state, group.partition_assignor) == (
        ConsumerGroupType.CONSUMER,
        ConsumerGroupState.STABLE,
        "uniform",
    )
    assert len(group.members) == 3
    for member in group.members:
        assert member.assignment.topic_partitions == member.target_assignment.topic_partitions
    team.leave(first)
    until(team.shared, what="two members to share")
    once(team, source, until)


@pytest.mark.parametrize("classic", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_group_migrates_up_and_down_under_load(team, topic, address, until, groups_admin, classic):
    """Members move to the new protocol and back one by one while records arrive: each is read once."""
    source = Source(address, topic, PARTITIONS)
    for _ in range(3):
        team.join(**classic)
    until(team.shared, what="three classic members to share")
    assert described(groups_admin, team.group).type is ConsumerGroupType.CLASSIC
    for kind, new in ((ConsumerGroupType.CONSUMER, NEW), (ConsumerGroupType.CLASSIC, classic)):
        for former in list(team.readers):
            before = len(team.account)
            team.join(**new)
            until(team.shared, what=f"four members to share, one of them of {new}")
            team.leave(former)
            until(team.shared, what=f"three members to share, one of them of {new}")
            until(lambda before=before: len(team.account) > before + 50, what="records to be read")
        assert described(groups_admin, team.group).type is kind
    once(team, source, until)


def test_a_kill_of_the_daemon_moves_nobody(team, topic, daemon, address, until, groups_admin):
    source = Source(address, topic, PARTITIONS)
    for _ in range(2):
        team.join(**NEW)
    until(team.shared, what="two members to share")
    until(lambda: described(groups_admin, team.group).state is ConsumerGroupState.STABLE)
    before = {m.member_id: m.assignment.topic_partitions for m in described(groups_admin, team.group).members}
    epochs = listing(daemon, team.group)["members"]
    read = len(team.account)
    daemon.kill()
    daemon.restart()
    until(lambda: len(team.account) > read + 200, what="records after the restart")
    again = AdminClient({"bootstrap.servers": address})
    after = {m.member_id: m.assignment.topic_partitions for m in described(again, team.group).members}
    assert after == before
    assert listing(daemon, team.group)["members"] == epochs
    once(team, source, until)


def listing(daemon, group):
    """Returns the output of `treecast groups describe --json`."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "groups", "describe", group, "--json"]
    done = subprocess.run([*command, "--control", daemon.control], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_topics_by_a_regular_expression(team, topic, address, until, groups_admin, unique):
    source = Source(address, topic, PARTITIONS)
    reader = team.join([f"^{topic}.*"], **NEW)
    until(lambda: len(reader.assigned) == PARTITIONS, what="the topic by its pattern")
    more = f"{topic}-more"
    groups_admin.create_topics([NewTopic(more, 2)])[more].result(30)
    until(lambda: (more, 1) in reader.assigned, what="a topic that came later")
    once(team, source, until)


@pytest.mark.parametrize(
    ("subscription", "settings", "said"),
    [
        ("^a{1001}", {}, "regular expression"),  # librdkafka accepts this expression, RE2 does not
        ("a", {"group.remote.assignor": "mine"}, "assignor"),
    ],
)
def test_what_is_refused_is_named(address, unique, subscription, settings, said):
    consumer = Consumer({"bootstrap.servers": address, "group.id": unique("g"), **NEW, **settings})
    try:
        consumer.subscribe([subscription])
        found = ""
        for _ in range(200):
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                found = message.error().str()
                if said in found.lower():
                    break
        assert said in found.lower()
    finally:
        consumer.close()


def test_range_meets_across_topics(team, topic, address, until, groups_admin, unique):
    other = unique("other")
    groups_admin.create_topics([NewTopic(other, PARTITIONS)])[other].result(30)
    readers = [team.join([topic, other], **NEW, **{"group.remote.assignor": "range"}) for _ in range(2)]
    until(lambda: team.shared(2 * PARTITIONS), what="both topics to be shared")
    for reader in readers:
        assert {n for t, n in reader.assigned if t == topic} == {n for t, n in reader.assigned if t == other}
    assert described(groups_admin, team.group).partition_assignor == "range"


def test_a_static_member_comes_back_to_what_it_had(team, topic, until, groups_admin):
    static = {"group.instance.id": "one", **NEW}
    first, second = team.join(**static), team.join(**NEW)
    until(team.shared, what="two members to share")
    had, kept = set(first.assigned), set(second.assigned)
    team.leave(first)
    again = team.join(**static)
    until(lambda: again.assigned == had, what="what its former self had")
    assert second.assigned == kept
    other = Reader(again.address, team.group, [topic], team.account, team.lock, **static)
    until(lambda: other.faults, what="the second of one instance id to be refused")
    other.stop()
    assert again.assigned == had


def test_offsets_and_groups_by_an_admin_client(team, topic, address, until, groups_admin):
    source = Source(address, topic, PARTITIONS)
    reader = team.join(**NEW)
    until(lambda: len(team.account) > 100, what="records")
    listed = groups_admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(30).valid
    assert team.group in {group.group_id for group in listed}
    classic = groups_admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(30).valid
    assert team.group not in {group.group_id for group in classic}
    with pytest.raises(KafkaException) as refused:
        groups_admin.delete_consumer_groups([team.group])[team.group].result(30)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    once(team, source, until)
    team.leave(reader)
    consumer = Consumer({"bootstrap.servers": address, "group.id": team.group})
    committed = consumer.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], 30)
    consumer.close()
    ends = Counter(partition for partition, _ in source.sent)
    assert {one.partition: one.offset for one in committed} == dict(ends)
    groups_admin.delete_consumer_groups([team.group])[team.group].result(30)


def test_the_command_tells_types_and_epochs(team, daemon, until):
    team.join(**NEW)
    until(team.shared, what="one member to have all")
    found = listing(daemon, team.group)
    assert found["group"]["type"] == "consumer"
    assert found["group"]["epoch"] == found["group"]["assignment_epoch"] == found["members"][0]["epoch"] >= 1
    assert found["members"][0]["protocol"] == "consumer"
    command = [sys.executable, "-m", "treecast.middleware.cli", "groups", "list", "--control", daemon.control]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "consumer" in next(line for line in shown.splitlines() if team.group in line)
