"""Options of a read: their meaning; the error for each wrong one names the valid values."""

from __future__ import annotations

import pytest

from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.source.offsets import EARLIEST, LATEST, Partition
from treecast.spark_connectors.source.options import parse_options

T0, T1 = Partition("t", 0), Partition("t", 1)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    stream = parse_options({"subscribe": "a, b"}, streaming=True)
    batch = parse_options({"subscribe": "a"}, streaming=False)
    assert stream.subscription.topics == ("a", "b")
    assert (stream.starting.everywhere, batch.starting.everywhere) == (LATEST, EARLIEST)
    assert (batch.ending.everywhere, stream.max_rows, stream.min_partitions) == (LATEST, None, 0)
    assert (stream.fail_on_data_loss, stream.include_headers, stream.isolation) == (
        True,
        False,
        "read_uncommitted",
    )


def test_names_in_any_case() -> None:
    read = parse_options(
        {"SUBSCRIBE": "a", "MaxOffsetsPerTrigger": "5", "KAFKA.bootstrap.servers": "h:1"}, streaming=True
    )
    assert (read.max_rows, read.bootstrap) == (5, "h:1")


def test_offsets_and_times() -> None:
    read = parse_options(
        {"assign": '{"t": [0, 1]}', "startingOffsets": '{"t": {"0": 5, "1": -2}}', "endingTimestamp": "7"},
        streaming=False,
    )
    assert read.subscription.partitions == {T0, T1}
    assert read.starting.offsets == {T0: 5, T1: EARLIEST}
    assert read.ending.time == 7
    assert not read.ending.strict_time


def test_which_partitions_are_taken() -> None:
    pattern = parse_options({"subscribePattern": "t.*"}, streaming=True).subscription
    assert pattern.takes(Partition("topic", 3))
    assert not pattern.takes(Partition("at", 0))
    some = parse_options({"assign": '{"t": [1]}'}, streaming=True).subscription
    assert (some.takes(T0), some.takes(T1)) == (False, True)


@pytest.mark.parametrize(
    ("options", "streaming", "message"),
    [
        ({"subscribe": "a", "maxOffsetPerTrigger": "1"}, True, "did you mean maxOffsetsPerTrigger?"),
        ({"subscribe": "a", "colour": "1"}, True, "there is no option colour; there are assign"),
        ({}, True, "one of subscribe, subscribePattern and assign"),
        ({"subscribe": "a", "assign": "{}"}, True, "there are subscribe and assign"),
        ({"subscribe": " , "}, True, "subscribe names no topic"),
        ({"subscribePattern": "("}, True, "subscribePattern is no regular expression"),
        ({"assign": '{"t": 1}'}, True, "assign is a JSON object such as"),
        ({"assign": "{"}, True, "assign is a JSON object such as"),
        (
            {"subscribe": "a", "endingOffsets": "latest"},
            True,
            "an option of batch reads only",
        ),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, False, "an option of streaming reads only"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, True, "a whole number above 0, not '0'"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, True, "failOnDataLoss is true or false, not 'no'"),
        ({"subscribe": "a", "startingOffsets": "first"}, True, "startingOffsets is earliest, latest or"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, True, "'0': -3"),
        ({"subscribe": "a", "startingOffsets": "{}"}, True, "there is no partition in '{}'"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {}}'}, True, "there is no partition in"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, False, "'0': -2"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, False, "endingOffsets is latest or"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, True, "milliseconds since 1970"),
        ({"subscribe": "a", "startingTimestamp": str(2**63)}, True, "milliseconds since 1970"),
        (
            {"subscribe": "a", "startingOffsets": f'{{"a": {{"0": {2**63}}}}}'},
            True,
            "'0': 9223372036854775808",
        ),
        ({"assign": f'{{"a": [{2**31}]}}'}, True, "assign is a JSON object such as"),
        ({"subscribe": "a", "readTimeoutMs": str(2**31)}, True, "a whole number from 1 to 2147483647, not"),
        ({"subscribe": "a", "kafka.isolation.level": "serial"}, True, "read_uncommitted or read_committed"),
        ({"subscribe": "a", "filter": "price >"}, True, "filter: a number or a string is wanted"),
        ({"subscribe": "a", "filter": "avg(x) > 1"}, True, r"filter: avg\(x\) needs state"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("?", r"\?") if "(" not in message else message):
        parse_options(options, streaming=streaming)
