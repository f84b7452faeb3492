"""Options of Spark's Kafka connector, row by row of the table in docs/spark.md."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.api.discovery import Address
from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.servers import Servers
from treecast.spark_connectors.sink.options import parse_options as parse_sink
from treecast.spark_connectors.source.java_regex import python_regex
from treecast.spark_connectors.source.offsets import Offsets, Partition
from treecast.spark_connectors.source.options import SourceOptions, parse_options
from treecast.spark_connectors.source.planning import Range, at_most, delayed

T0, T1 = Partition("t", 0), Partition("t", 1)


def stream(**given: str) -> SourceOptions:
    return parse_options({"subscribe": "t", **given}, streaming=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("groupIdPrefix", "team-a"),
        ("kafkaConsumer.pollTimeoutMs", "512"),
        ("fetchOffset.numRetries", "3"),
        ("fetchOffset.retryIntervalMs", "10"),
    ],
)
def test_harmless(name: str, value: str) -> None:
    for streaming in (True, False):
        read = parse_options({"subscribe": "t", name.lower(): value}, streaming=streaming)
        assert read.without_effect == (name,)
    if value.isdecimal():
        with pytest.raises(OptionError, match=f"{re.escape(name)} is a whole number, not 'soon'"):
            stream(**{name: "soon"})


def test_headers_are_always_written() -> None:
    given = {"topic": "t", "includeheaders": "true"}
    assert parse_sink(given, streaming=True).without_effect == ("includeHeaders",)


def test_a_trigger_may_wait_for_more() -> None:
    read = stream(minOffsetsPerTrigger="100")
    assert (read.min_rows, read.max_delay) == (100, 900)
    times = {"30s": 30, "2 min": 120, "500": 0.5, "500ms": 0.5, "1h": 3600, "1D": 86400, "7us": 7e-6}
    for text, seconds in times.items():
        assert stream(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_delay == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger is a whole number above 0"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5 is above maxOffsetsPerTrigger 4"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay goes with minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "a time such as 15m, 30s or 500ms"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5 weeks"}, "a time such as 15m, 30s or 500ms"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition is a whole number above 0"),
        ({"endingOffsetsByTimestampStrategy": "latest"}, "an option of batch reads only"),
        ({"subscribePattern": "a[b[c]]"}, "there are subscribe and subscribePattern"),
    ],
)
def test_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        stream(**given)


@pytest.mark.parametrize("name", ["minOffsetsPerTrigger", "maxTriggerDelay"])
def test_only_streams_have_triggers(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is an option of streaming reads only"):
        parse_options({"subscribe": "t", name: "5"}, streaming=False)


def test_an_end_by_time_may_be_strict() -> None:
    given = {"subscribe": "t", "endingTimestamp": "7"}
    assert not parse_options(given, streaming=False).ending.strict_time
    strict = parse_options(given | {"endingOffsetsByTimestampStrategy": "error"}, streaming=False)
    assert strict.ending.strict_time


offsets = st.dictionaries(st.sampled_from([T0, T1]), st.integers(0, 300))


@pytest.mark.parametrize(("waited", "waits"), [(0.0, True), (59.9, True), (60.0, False)])
def test_a_trigger_waits_no_longer_than_it_may(waited: float, waits: bool) -> None:
    assert delayed({T0: 5}, {T0: 14, T1: 90}, 100, waited, 60.0) is waits
    assert not delayed({T0: 5}, {T0: 15, T1: 90}, 100, waited, 60.0), "there are enough"
    assert delayed({T0: 50}, {T0: 5, T1: 90}, 100, 0.0, 60.0), "a log that was cut has nothing new"


@given(offsets, st.integers(1, 40))
def test_no_task_gets_more_than_it_may(sizes: Offsets, most: int) -> None:
    whole = [Range(part, 7, 7 + size) for part, size in sorted(sizes.items()) if size]
    parts = at_most(whole, most)
    covered = [(part.partition, offset) for part in parts for offset in range(part.first, part.until)]
    assert covered == [(part.partition, offset) for part in whole for offset in range(part.first, part.until)]
    assert all(0 < len(part) <= most for part in parts)
    assert len(parts) == sum(-(-len(part) // most) for part in whole)
    assert at_most(whole, 0) == whole


@pytest.mark.parametrize(
    ("java", "fits", "fits_not"),
    [
        (r"orders-.*", "orders-eu", "xorders-eu"),
        (r"\Qa.b\E\d", "a.b1", "axb1"),
        (r"\Qa.b", "a.b", "axb"),
        (r"(?<x>[ab])-\k<x>", "a-a", "a-b"),
        (r"(?<!x)y", "y", "x"),
        (r"\p{Alpha}+_\p{Digit}", "ab_1", "a1_1"),
        (r"[\p{Lower}.]+", "a.b", "A"),
        (r"\P{Digit}+", "ab", "a1"),
        (r"t\z", "t", "t\n"),
        (r"[]x]+", "]x", "y"),
        (r"\[a&&b\]", "[a&&b]", "a"),
    ],
)
def test_regular_expressions_of_java(java: str, fits: str, fits_not: str) -> None:
    pattern = parse_options({"subscribePattern": java}, streaming=True).subscription.pattern
    assert re.fullmatch(pattern, fits)
    assert not re.fullmatch(pattern, fits_not)


@pytest.mark.parametrize("java", ["[a[b]]", "[a-z&&[^b]]", r"\p{IsGreek}", r"[\P{Digit}]"])
def test_what_python_would_read_otherwise_is_refused(java: str) -> None:
    with pytest.raises(OptionError, match=r"subscribePattern is no regular expression: .* not known here"):
        parse_options({"subscribePattern": java}, streaming=True)


@given(st.text("ab-_.[]^$*+?(){}|0", max_size=12))
def test_patterns_without_a_backslash_stay_as_they_are(text: str) -> None:
    try:
        found = python_regex(text)
    except ValueError:
        assert text.count("[") > 1
    else:
        assert found == text


def test_addresses_may_name_the_plain_listener() -> None:
    found = Servers.parse("PLAINTEXT://h:1, plaintext://[::1]:2,h:3")
    assert found == (Address("h", 1), Address("::1", 2), Address("h", 3))
    with pytest.raises(OptionError, match="SASL_SSL:// asks for TLS or SASL"):
        Servers.parse("SASL_SSL://h:1")
