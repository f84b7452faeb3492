"""The command-line tools of Apache Kafka, unmodified. Each starts a virtual machine, so each test does
much."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = pytest.mark.clients

# The tools run for a second or two, and spend most of it on the start of the virtual machine.
SHORT_LIVED = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@pytest.fixture
def tool(kafka, kafka_jars):
    """Returns `tool("kafka-topics", "--list", input="", fails=False)`, which returns the tool's output."""
    from bench.peers.kafka.tools import tool_command

    def run(name, *arguments, input=None, fails=False):
        command = tool_command(name, ["--bootstrap-server", kafka, *arguments], SHORT_LIVED)
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=90, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr if fails else done.stdout

    return run


def test_topics_and_configuration(tool, unique, until):
    topic = unique("tool")
    settings = ["--config", "retention.ms=7200000"]
    tool("kafka-topics", "--create", "--topic", topic, "--partitions", "2", *settings)
    assert topic in tool("kafka-topics", "--list").split()
    tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
    described = tool("kafka-topics", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=7200000" in described
    entity = ["--entity-type", "topics", "--entity-name", topic]
    changes = "max.message.bytes=9000,cleanup.policy=[compact,delete]"
    tool("kafka-configs", "--alter", *entity, "--add-config", changes, "--delete-config", "retention.ms")
    listed = tool("kafka-configs", "--describe", *entity)
    assert "max.message.bytes=9000" in listed
    assert "cleanup.policy=compact,delete" in listed
    assert "retention.ms" not in listed
    tool("kafka-topics", "--delete", "--topic", topic)
    assert "does not exist" in tool("kafka-topics", "--describe", "--topic", topic, fails=True)


def test_console_producer_and_consumer(tool, new_topic, read_all, make_sample):
    topic = new_topic()
    tool(
        "kafka-console-producer",
        *("--topic", topic, "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        input="a:1,b:2\tkey\tvalue\nNULL\tNULL\tno key\nNULL\ttombstone\tNULL\n",
    )
    assert [stored.sample for stored in read_all(topic)] == [
        make_sample(b"key", b"value", (("a", b"1"), ("b", b"2"))),
        make_sample(None, b"no key"),
        make_sample(b"tombstone", None),
    ]
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"]
    shown += ["--formatter-property", "print.offset=true"]
    read = tool("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "3", *shown)
    assert read.splitlines() == [
        "Offset:0\ta:1,b:2\tkey\tvalue",
        "Offset:1\tNO_HEADERS\tnull\tno key",
        "Offset:2\tNO_HEADERS\ttombstone\tnull",
    ]


def test_groups(tool, new_topic, write_all, make_sample, unique):
    topic, group = new_topic(), unique("group")
    write_all(topic, [make_sample(None, b"x")] * 10, 0, [1_700_000_000_000 + i * 1000 for i in range(10)])
    consumed = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10"]
    tool("kafka-console-consumer", *consumed)
    described = tool("kafka-consumer-groups", "--describe", "--group", group)
    assert [line.split()[:6] for line in described.splitlines() if topic in line] == [
        [group, topic, "0", "10", "10", "0"]
    ]
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--execute"]
    tool("kafka-consumer-groups", *reset, "--to-datetime", "2023-11-14T22:13:24.000")
    described = tool("kafka-consumer-groups", "--describe", "--group", group)
    assert [line.split()[3] for line in described.splitlines() if topic in line] == ["4"]
    assert group in tool("kafka-consumer-groups", "--list").split()
    tool("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in tool("kafka-consumer-groups", "--list").split()


def test_offsets_and_deleted_records(tool, new_topic, write_all, make_sample, tmp_path):
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        write_all(topic, [make_sample(None, b"x")] * 5, partition)
    wish = {"partitions": [{"topic": topic, "partition": 1, "offset": 3}], "version": 1}
    (tmp_path / "wish.json").write_text(json.dumps(wish))
    tool("kafka-delete-records", "--offset-json-file", str(tmp_path / "wish.json"))
    assert tool("kafka-get-offsets", "--topic", topic, "--time", "-2").split() == [
        f"{topic}:0:0",
        f"{topic}:1:3",
    ]
    assert tool("kafka-get-offsets", "--topic", topic).split() == [f"{topic}:0:5", f"{topic}:1:5"]


def test_verifiable_producer_and_consumer(tool, new_topic, unique):
    topic, group = new_topic(partitions=2), unique("group")
    wanted = ["--topic", topic, "--max-messages", "2000"]
    sent = _events(tool("kafka-verifiable-producer", *wanted, "--acks", "-1"))
    assert sum(event["name"] == "producer_send_success" for event in sent) == 2000
    wanted += ["--group-id", group, "--group-protocol", "classic", "--reset-policy", "earliest"]
    events = _events(tool("kafka-verifiable-consumer", *wanted))
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 2000
    committed = {
        (part["partition"], part["offset"])
        for event in events
        if event["name"] == "offsets_committed" and event["success"]
        for part in event["offsets"]
    }
    assert sum(max((o for p, o in committed if p == number), default=0) for number in (0, 1)) == 2000


def _events(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_api_versions_are_understood(tool):
    """The tool prints each API of the broker, and UNSUPPORTED for those that the client cannot use."""
    output = tool("kafka-broker-api-versions")
    for name in ("Produce(0)", "Fetch(1)", "Metadata(3)", "JoinGroup(11)", "EndTxn(26)"):
        [line] = [line for line in output.splitlines() if name in line]
        assert "usable" in line
        assert "UNSUPPORTED" not in line
