"""`produce` and `consume` beside a real daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treecast.middleware.cli.output import duration_text, size_text
from treecast.middleware.cli.times import milliseconds, time_text


@pytest.fixture
def topic(treecast, request: pytest.FixtureRequest) -> str:
    name = "t" + str(abs(hash(request.node.nodeid)))
    treecast("topics", "create", name)
    return name


def test_lines_become_records(treecast, topic: str) -> None:
    done = treecast("produce", topic, stdin="one\ntwo\n\nkäse".encode())
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines()[-1] == f"produced 4 records (11 B) to {topic}"
    assert done.err.startswith("treecast: answered by the daemon at ")
    assert treecast("consume", topic, "--beginning", "--count", "4").lines == ["one", "two", "", "käse"]


def test_a_file_with_keys_headers_and_compression(treecast, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"k{n}:v{n}\n" for n in range(2000)))
    done = treecast(
        "produce", topic, "--file", str(path), "--key-separator", ":", "--header", "a=b", "--header", "c=",
        "--compression", "zstd", "--json",
    )  # fmt: skip
    assert done.json == {"topic": topic, "records": 2000, "bytes": path.stat().st_size - 2000}
    lines = treecast("consume", topic, "--beginning", "--count", "2000", "--json").lines
    records = [json.loads(line) for line in lines]
    assert [(r["key"], r["value"]) for r in records] == [(f"k{n}", f"v{n}") for n in range(2000)]
    assert records[0]["headers"] == [{"name": "a", "value": "b"}, {"name": "c", "value": ""}]
    assert [r["offset"] for r in records] == list(range(2000))
    assert treecast("consume", topic, "--beginning", "-n", "1", "--keys").lines == ["k0\tv0"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(treecast, topic: str, compression: str) -> None:
    treecast("produce", topic, "--compression", compression, stdin=b"x" * 500 + b"\n")
    assert treecast("consume", topic, "--beginning", "-n", "1").lines == ["x" * 500]


def test_bytes_that_are_no_text(treecast, topic: str) -> None:
    treecast("produce", topic, stdin=b"\xff\xfe\n")
    (line,) = treecast("consume", topic, "--beginning", "-n", "1", "--json").lines
    assert json.loads(line)["value_base64"] == "//4="


def test_from_an_offset_and_from_a_time(treecast, topic: str) -> None:
    treecast("produce", topic, stdin=b"a\nb\nc\n")
    assert treecast("consume", topic, "--offset", "1", "-n", "2").lines == ["b", "c"]
    (line,) = treecast("consume", topic, "--beginning", "-n", "1", "--json").lines
    when = json.loads(line)
    assert milliseconds(when["time"], "--time") == when["timestamp"]
    assert treecast("consume", topic, "--time", when["time"], "-n", "3").lines == ["a", "b", "c"]
    assert treecast("consume", topic, "--time", "4000000000000", "--idle", "0.1").lines == []


def test_the_end_is_where_it_starts_unless_told_otherwise(treecast, topic: str) -> None:
    treecast("produce", topic, stdin=b"a\n")
    assert treecast("consume", topic, "--idle", "0.1").lines == []
    assert treecast("consume", topic, "--partition", "0", "--beginning", "-n", "1").lines == ["a"]


def test_a_group_goes_on_where_it_stopped(treecast, topic: str) -> None:
    treecast("produce", topic, stdin=b"a\nb\nc\n")
    group = f"g-{topic}"
    assert treecast("consume", topic, "--group", group, "--beginning", "-n", "1").lines == ["a"]
    assert treecast("consume", topic, "--group", group, "-n", "2").lines == ["b", "c"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["produce", "T", "--file", "/nonexistent"], "cannot read /nonexistent: No such file"),
        (["produce", "T", "--compression", "brotli"], "expected one of none, gzip"),
        (["produce", "T", "--acks", "2"], "expected all, 1 or 0"),
        (["produce", "T", "--header", "x"], "expected NAME=VALUE"),
        (["produce", "T", "--key-separator", ":"], "line 1 holds no ':'"),
        (["consume", "no-such-topic-here"], "there is no topic 'no-such-topic-here'"),
        (["consume", "T", "--partition", "7"], "has no partition 7, but 0 to 0"),
        (["consume", "T", "--beginning", "--offset", "3"], "give one of --beginning"),
        (["consume", "T", "--group", "g", "--offset", "3"], "move them with `treecast groups reset`"),
        (["consume", "T", "--kafka", "nowhere"], "--kafka nowhere: expected HOST:PORT"),
        (["consume", "T", "--kafka", "127.0.0.1:1"], "no Kafka broker listens at 127.0.0.1:1; start one"),
        (["produce", "T", "--kafka", "127.0.0.1:1"], "no Kafka broker listens at 127.0.0.1:1; start one"),
        (["bench", "write"], "expected produce, fetch, latency"),
        (["bench", "produce", "--kafka", "127.0.0.1:1"], "start one with `treecast up`"),
        (["bench", "fetch", "--topic", "no-such-topic-here"], "fill it first"),
    ],
)
def test_refusals_say_what_to_do(treecast, topic: str, arguments: list[str], said: str) -> None:
    refused = treecast(*(topic if word == "T" else word for word in arguments), stdin=b"line\n")
    assert refused.code == 1
    assert said in refused.err
    assert "Traceback" not in refused.err


def test_a_record_that_the_topic_refuses(treecast) -> None:
    treecast("topics", "create", "compacted", "--config", "cleanup.policy=compact")
    refused = treecast("produce", "compacted", stdin=b"no key\n")
    assert refused.code == 1
    assert "InvalidRecord" in refused.err.replace(" ", "")


@pytest.mark.parametrize("kind", ["produce", "fetch", "latency"])
def test_bench_runs_each_kind(treecast, topic: str, kind: str) -> None:
    if kind == "fetch":
        treecast("bench", "produce", "--topic", topic, "--records", "1000", "--json")
    rate = ["--rate", "1000"] if kind == "latency" else []
    done = treecast("bench", kind, "--topic", topic, "--records", "200", *rate, "--json").json
    assert done["kind"] == kind
    assert done["options"]["topic"] == topic


def test_bench_shows_a_table(treecast, topic: str) -> None:
    assert "records/s" in treecast("bench", "produce", "--topic", topic, "--records", "200").out


# --- texts


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h"), (90061, "1 d 1 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_times() -> None:
    assert milliseconds("1700000000000", "--time") == 1_700_000_000_000
    assert milliseconds("2023-11-14T22:13:20Z", "--time") == 1_700_000_000_000
    assert time_text(1_700_000_000_001) == "2023-11-14T22:13:20.001Z"
