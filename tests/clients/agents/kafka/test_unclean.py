"""An unclean election: the cluster loses records that hosts have, and the hosts go on with what it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaConnectionError
from tests.clients.agents.kafka.site import PATIENCE, Cluster, KafkaAgent, read_all, until

from treecast.middleware.daemon.process import DaemonProcess

TOPIC = "followed"


def write(bootstrap: str, values: list[bytes], acks: int | str = 1) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False, retries=100)
    for value in values:
        producer.send(TOPIC, value).get(PATIENCE)
    producer.close()


@pytest.mark.slow
def test_copies_and_replicas_are_cut_where_the_new_leader_parts(
    java: None, hosts: tuple[DaemonProcess, DaemonProcess], tmp_path: Path
) -> None:
    """Broker 2 is away while broker 1 takes ten records; then broker 1 is away, and broker 2 leads."""
    first = hosts[0]
    token = first.data / "join-token"
    with Cluster(tmp_path) as cluster:
        one, two = (f"127.0.0.1:{cluster.ports[node]}" for node in (1, 2))
        admin = KafkaAdminClient(bootstrap_servers=one)
        admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2]})])
        agent = KafkaAgent(
            "unclean", tmp_path / "agent", one, first.ready["control"], token, f'topics = ["{TOPIC}"]'
        )
        agent.start()
        try:
            write(one, [b"both-%d" % number for number in range(10)], acks="all")
            cluster.kill(2)
            until(lambda: isr(admin) == [1], "broker 2 stays in sync")
            write(one, [b"lost-%d" % number for number in range(10)])
            for host in hosts:
                assert len(read_all(host.ready["kafka"], TOPIC, 20)) == 20
            admin.close()
            cluster.kill(1)
            cluster.start(2)
            agent.until(lambda found: found["topics"][TOPIC]["leader_epoch"] > 0, "broker 2 does not lead")
            write(two, [b"new-%d" % number for number in range(5)])
            agent.until(lambda found: found["cuts"], "the copy is not cut")
            wanted = [b"both-%d" % number for number in range(10)] + [b"new-%d" % n for n in range(5)]
            for host in hosts:
                here = host.ready["kafka"]
                until(
                    lambda here=here: [v for _, _, v in read_all(here, TOPIC, 15)] == wanted, "it is not cut"
                )
        finally:
            agent.clean_up()
            print(agent.log.read_text())


def isr(admin: KafkaAdminClient) -> list[int]:
    """Returns the brokers in sync; none while the client looks for a broker that answers."""
    try:
        (found,) = admin.describe_topics([TOPIC])
    except KafkaConnectionError:
        return []
    nodes: list[int] = found["partitions"][0]["isr_nodes"]
    return nodes
