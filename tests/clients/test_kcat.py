"""kcat as Debian packages it, unmodified."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = pytest.mark.clients

FORMAT = r"%p %o %T %K:%k %S:%s %h\n"


@pytest.fixture
def kcat(kafka, require_tool):
    program = require_tool("kcat")

    def run(*arguments, input=""):
        command = [program, "-b", kafka, "-m", "30", *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_every_compression_goes_in_and_out(kcat, new_topic, stored_codecs, compressions):
    topic = new_topic(partitions=len(compressions))
    text = "".join(f"{i}:the same words again and again\n" for i in range(200))
    # prevents a batch of the first line alone
    whole = ("-X", "batch.num.messages=200", "-X", "linger.ms=60000")
    for partition, compression in enumerate(compressions):
        kcat("-P", "-t", topic, "-p", str(partition), "-z", compression, "-K", ":", *whole, input=text)
        assert stored_codecs(topic, partition) == {compression}
        read = kcat("-C", "-t", topic, "-p", str(partition), "-e", "-q", "-K", ":")
        assert read == text


def test_headers_null_and_empty(kcat, new_topic, read_all, make_sample):
    topic = new_topic()
    kcat("-P", "-t", topic, "-Z", "-K", ":", "-H", "a=1", "-H", "none", input="key:value\nnull:\n")
    assert [stored.sample for stored in read_all(topic)] == [
        make_sample(b"key", b"value", (("a", b"1"), ("none", None))),
        make_sample(b"null", None, (("a", b"1"), ("none", None))),
    ]
    lines = kcat("-C", "-t", topic, "-e", "-q", "-f", FORMAT).splitlines()
    assert [line.split(" ")[3:] for line in lines] == [
        ["3:key", "5:value", "a=1,none=NULL"],
        ["4:null", "-1:", "a=1,none=NULL"],
    ]


def test_seek_by_time_and_offset(kcat, new_topic, write_all, make_sample):
    topic, base = new_topic(), 1_700_000_000_000
    write_all(
        topic, [make_sample(None, b"%d" % i) for i in range(20)], 0, [base + i * 1000 for i in range(20)]
    )
    by_time = kcat("-C", "-t", topic, "-p", "0", "-q", "-o", f"s@{base + 4500}", "-o", f"e@{base + 8000}")
    assert by_time.split() == ["5", "6", "7"]
    assert kcat("-C", "-t", topic, "-p", "0", "-q", "-e", "-o", "-3").split() == ["17", "18", "19"]
    assert kcat("-Q", "-t", f"{topic}:0:{base + 4500}").split()[-1] == "5"


def test_metadata(kcat, new_topic, kafka):
    topic = new_topic(partitions=3)
    listing = json.loads(kcat("-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listing["brokers"]] == [kafka]
    [described] = [t for t in listing["topics"] if t["topic"] == topic]
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    node = listing["brokers"][0]["id"]
    assert {p["leader"] for p in described["partitions"]} == {node}


def test_a_group_goes_on_where_it_committed(kcat, new_topic, write_all, make_sample, unique):
    topic, group = new_topic(), unique("group")
    write_all(topic, [make_sample(None, b"%d" % i) for i in range(10)])
    member = ["-X", "auto.offset.reset=earliest", "-q", "-G", group, topic]
    assert kcat("-c", "4", *member).split() == ["0", "1", "2", "3"]
    assert kcat("-c", "6", *member).split() == ["4", "5", "6", "7", "8", "9"]


def test_idempotent_and_transactional_producing(kcat, new_topic, read_all, unique):
    topic = new_topic()
    kcat("-P", "-t", topic, "-X", "enable.idempotence=true", input="one\ntwo\n")
    kcat("-P", "-t", topic, "-X", f"transactional.id={unique('tx')}", input="three\nfour\n")
    committed = [stored.sample.value for stored in read_all(topic, "read_committed")]
    assert committed == [b"one", b"two", b"three", b"four"]
    read = kcat("-C", "-t", topic, "-e", "-q", "-X", "isolation.level=read_committed")
    assert read.split() == ["one", "two", "three", "four"]


def test_a_large_message(kcat, new_topic, read_all, tmp_path):
    topic = new_topic()
    (tmp_path / "large").write_bytes(b"x" * 900_000)
    kcat("-P", "-t", topic, str(tmp_path / "large"))
    assert [len(stored.sample.value) for stored in read_all(topic)] == [900_000]
