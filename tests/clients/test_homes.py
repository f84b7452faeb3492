"""Real clients of one group and of one transaction beside two daemons."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.daemon.process import DaemonProcess

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.clients

FABRIC = ("--fabric", "127.0.0.1:0")
PATIENCE = 90.0  # seconds until a test gives up; nothing is asserted about it


@pytest.fixture
def hosts(start_daemon: Callable[..., DaemonProcess]) -> list[DaemonProcess]:
    first = start_daemon("--name", "a", *FABRIC)
    token = ("--join-token", f"@{first.data / 'join-token'}")
    return [first, start_daemon("--name", "b", *FABRIC, "--join", first.control, *token)]


@pytest.fixture
def topic(hosts: list[DaemonProcess]) -> str:
    """Four partitions, two led by each host, known to both."""
    make(hosts, "t", 4)
    return "t"


def make(hosts: list[DaemonProcess], name: str, partitions: int) -> None:
    with DaemonClient(hosts[0].control) as client:
        client.create_topic(name, partitions)
    for host in hosts:
        with DaemonClient(host.control) as client:
            until(lambda client=client: name in {one.name for one in client.list_topics()})


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)


def producer(daemon: DaemonProcess, **more: Any) -> Any:
    return confluent_kafka.Producer(_config(daemon, linger_ms=1, **more))


def consumer(daemon: DaemonProcess, group: str, **more: Any) -> Any:
    return confluent_kafka.Consumer(
        _config(
            daemon,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            fetch_wait_max_ms=50,
            **more,
        )
    )


def _config(daemon: DaemonProcess, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": daemon.kafka} | {k.replace("_", "."): v for k, v in more.items()}


def produce(daemon: DaemonProcess, topic: str, count: int, first: int = 0) -> None:
    client = producer(daemon, enable_idempotence=True)
    for number in range(first, first + count):
        client.produce(topic, b"%d" % number, partition=number % 4)
    assert client.flush(PATIENCE) == 0


def committed(daemon: DaemonProcess, group: str, topic: str) -> list[int]:
    asker = consumer(daemon, group)
    try:
        rows = asker.committed([confluent_kafka.TopicPartition(topic, n) for n in range(4)], timeout=PATIENCE)
        return [row.offset for row in rows]
    finally:
        asker.close()


def drain(clients: list[Any], values: Counter[bytes], wanted: int) -> None:
    """Reads at all clients until they have received `wanted` records together."""
    end = time.monotonic() + PATIENCE
    while values.total() < wanted:
        assert time.monotonic() < end, f"{values.total()} of {wanted} came"
        for client in clients:
            for message in client.consume(500, 0.1):
                if message.error() is None:
                    values[message.value()] += 1


def test_a_group_with_members_beside_two_hosts(hosts: list[DaemonProcess], topic: str) -> None:
    members = [consumer(host, "g") for host in hosts]
    for member in members:
        member.subscribe([topic])
    owned: dict[int, set[int]] = {}

    def shared() -> bool:
        for member in members:
            member.poll(0.1)
        for number, member in enumerate(members):
            owned[number] = {one.partition for one in member.assignment()}
        return all(len(partitions) == 2 for partitions in owned.values())

    until(shared)
    assert owned[0] | owned[1] == {0, 1, 2, 3}
    values: Counter[bytes] = Counter()
    produce(hosts[0], topic, 200)
    drain(members, values, 200)
    assert set(values.values()) == {1}
    for member in members:
        member.commit(asynchronous=False)
    assert committed(hosts[0], "g", topic) == committed(hosts[1], "g", topic) == [50] * 4
    members[0].close()
    until(lambda: members[1].poll(0.1) is None and len(members[1].assignment()) == 4)
    produce(hosts[1], topic, 100, first=200)
    drain(members[1:], values, 300)
    assert set(values.values()) == {1}
    members[1].close()
    for host in hosts:
        with DaemonClient(host.control) as client:
            assert [group.group_id for group in client.list_groups()] == ["g"]


@pytest.mark.parametrize("at", [0, 1])
def test_a_transaction_over_leaders_on_two_hosts(hosts: list[DaemonProcess], topic: str, at: int) -> None:
    client = producer(hosts[at], transactional_id="tx")
    client.init_transactions(PATIENCE)
    for number in range(6):
        client.begin_transaction()
        for partition in range(4):
            client.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 2:
            client.flush(PATIENCE)
            client.abort_transaction(PATIENCE)
        else:
            client.commit_transaction(PATIENCE)
    for host in hosts:
        reader = consumer(host, f"reader-{host.ready['name']}", isolation_level="read_committed")
        reader.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(4)])
        values: Counter[bytes] = Counter()
        drain([reader], values, 16)
        assert reader.consume(1, 0.5) == []
        reader.close()
        assert values == {b"0": 4, b"1": 4, b"3": 4, b"4": 4}


def test_a_fenced_producer_on_the_other_host(hosts: list[DaemonProcess], topic: str) -> None:
    old, new = (producer(host, transactional_id="tx") for host in hosts)
    old.init_transactions(PATIENCE)
    old.begin_transaction()
    old.produce(topic, b"old", partition=0)
    old.flush(PATIENCE)
    new.init_transactions(PATIENCE)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        old.commit_transaction(PATIENCE)
    assert fenced.value.args[0].fatal() or fenced.value.args[0].txn_requires_abort()
    new.begin_transaction()
    new.produce(topic, b"new", partition=0)
    new.commit_transaction(PATIENCE)
    reader = consumer(hosts[0], "reader", isolation_level="read_committed")
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: Counter[bytes] = Counter()
    drain([reader], values, 1)
    reader.close()
    assert values == {b"new": 1}


def test_exactly_once_from_one_host_to_the_other(hosts: list[DaemonProcess], topic: str) -> None:
    """Reads beside b, writes beside a, in transactions of which every third is aborted."""
    make(hosts, "out", 4)
    produce(hosts[0], topic, 300)
    assert committed(hosts[0], "g", topic) == [-1001] * 4  # makes a the group's home
    source = consumer(hosts[1], "g", isolation_level="read_committed", max_poll_interval_ms=60000)
    source.subscribe([topic])
    sink = producer(hosts[0], transactional_id="eo")
    sink.init_transactions(PATIENCE)
    end, done, turn = time.monotonic() + PATIENCE, 0, 0
    while done < 300:
        assert time.monotonic() < end, f"{done} of 300 came"
        messages = [m for m in source.consume(40, 0.5) if m.error() is None]
        if not messages:
            continue
        turn += 1
        sink.begin_transaction()
        for message in messages:
            sink.produce("out", message.value(), partition=message.partition())
        positions = source.position(source.assignment())
        sink.send_offsets_to_transaction(positions, source.consumer_group_metadata(), PATIENCE)
        if turn % 3 == 0:
            sink.abort_transaction(PATIENCE)
            for row in source.committed(source.assignment(), timeout=PATIENCE):
                row.offset = max(row.offset, 0)
                source.seek(row)
        else:
            sink.commit_transaction(PATIENCE)
            done += len(messages)
    source.close()
    assert turn >= 3
    for host in hosts:
        assert sum(committed(host, "g", topic)) == 300
        reader = consumer(host, f"reader-{host.ready['name']}", isolation_level="read_committed")
        reader.assign([confluent_kafka.TopicPartition("out", n, 0) for n in range(4)])
        values: Counter[bytes] = Counter()
        drain([reader], values, 300)
        assert reader.consume(1, 0.5) == []
        reader.close()
        assert values == Counter(b"%d" % number for number in range(300))


def test_commits_while_the_coordinator_is_down(hosts: list[DaemonProcess], topic: str) -> None:
    """The coordinator is embedded in a; the group's home is b."""
    member = consumer(hosts[1], "g")
    row = confluent_kafka.TopicPartition(topic, 0, 5)
    member.commit(offsets=[row], asynchronous=False)
    hosts[0].kill()
    for row.offset in (6, 7):
        member.commit(offsets=[row], asynchronous=False)
    assert committed(hosts[1], "g", topic) == [7, -1001, -1001, -1001]
    hosts[0].restart()
    until(lambda: committed_at_last(hosts[0], "g", topic) == [7, -1001, -1001, -1001])
    until(lambda: "coordinator's store is back" in hosts[1].log())
    hosts[1].restart()
    assert committed_at_last(hosts[1], "g", topic)[0] == 7
    member.commit(offsets=[row], asynchronous=False)
    member.close()


@pytest.mark.slow
def test_a_home_that_is_killed_is_taken_over(hosts: list[DaemonProcess], topic: str) -> None:
    """After the lease (10 s) and the time that a home may be away (30 s)."""
    make(hosts, "mine", 4)
    produce(hosts[0], topic, 40)
    assert committed(hosts[1], "g", topic) == [-1001] * 4  # makes b the group's home
    member = consumer(hosts[0], "g")
    partitions = [confluent_kafka.TopicPartition(topic, n, 5 + n) for n in range(4)]
    member.commit(offsets=partitions, asynchronous=False)
    hosts[1].kill()
    assert committed_at_last(hosts[0], "g", topic) == [5, 6, 7, 8]
    member.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 9)], asynchronous=False)
    member.close()
    hosts[1].restart()
    until(lambda: committed_at_last(hosts[1], "g", topic) == [9, 6, 7, 8])


def committed_at_last(daemon: DaemonProcess, group: str, topic: str) -> list[int]:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return committed(daemon, group, topic)
        except confluent_kafka.KafkaException:
            assert time.monotonic() < end, "nobody took over"
            time.sleep(0.5)
