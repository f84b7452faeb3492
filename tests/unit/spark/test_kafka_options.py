"""Options of Kafka's clients: those without effect are taken, each other one is refused with a reason."""

from __future__ import annotations

import pytest

from treecast.spark_connectors import kafka_options
from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.kafka_options import SINK, SOURCE, KafkaOptions


def test_what_tunes_a_client_is_taken_and_told() -> None:
    given = {"subscribe": "t", "Kafka.Client.Id": "x", "kafka.max.poll.records": " 500 ", "kafka.acks": "1"}
    assert kafka_options.check(SINK, {"kafka.acks": "all", "topic": "t"}) == ["kafka.acks"]
    del given["kafka.acks"]
    assert kafka_options.check(SOURCE, given) == ["Kafka.Client.Id", "kafka.max.poll.records"]
    plain = {"kafka.security.protocol": "plaintext", "kafka.send.buffer.bytes": "-1"}
    assert kafka_options.check(SOURCE, plain) == ["kafka.send.buffer.bytes"]


@pytest.mark.parametrize("known", [SOURCE, SINK])
def test_what_has_an_effect_is_not_told(known: KafkaOptions) -> None:
    assert kafka_options.check(known, {f"kafka.{name}": "x" for name in known.effective}) == []


@pytest.mark.parametrize(
    ("known", "name", "value", "message"),
    [
        (SOURCE, "ssl.truststore.location", "/x", "neither TLS nor SASL"),
        (SOURCE, "sasl.jaas.config", "x required;", "neither TLS nor SASL"),
        (SOURCE, "security.protocol", "SASL_SSL", "neither TLS nor SASL"),
        (SINK, "ssl.keystore.location", "/x", "neither TLS nor SASL"),
        (SOURCE, "interceptor.classes", "x", "names a Java class"),
        (SINK, "metric.reporters", "x", "names a Java class"),
        (SOURCE, "key.deserializer", "x", "decode the column key"),
        (SOURCE, "value.deserializer", "x", "decode the column value, or set format"),
        (SINK, "value.serializer", "x", "make the column value string or binary"),
        (SINK, "partitioner.class", "x", "a column partition"),
        (SOURCE, "auto.offset.reset", "earliest", "set startingOffsets"),
        (SOURCE, "enable.auto.commit", "false", "checkpoint keeps its offsets"),
        (SOURCE, "partition.assignment.strategy", "x", "there is no consumer group"),
        (SOURCE, "default.api.timeout.ms", "60000", "set readTimeoutMs"),
        (SINK, "default.api.timeout.ms", "60000", "set writeTimeoutMs"),
        (SINK, "transactional.id", "x", "names its transactions after query and batch"),
        (SINK, "transaction.timeout.ms", "1", "set stagingLeaseMs"),
        (SOURCE, "fetch.max.bytes", "1MB", "is a whole number, not '1MB'"),
        (SOURCE, "check.crcs", "yes", "is true or false, not 'yes'"),
        (SINK, "linger.ms", "5s", "is a whole number, not '5s'"),
        (SOURCE, "isolation.levels", "x", "does not know it.* did you mean kafka.isolation.level?"),
        (
            SOURCE,
            "acks",
            "all",
            "the source does not know it; of Kafka's options kafka.bootstrap.servers and",
        ),
        (SINK, "isolation.level", "x", "kafka.bootstrap.servers and kafka.compression.type have an effect"),
    ],
)
def test_what_is_refused_is_named_with_a_reason(
    known: KafkaOptions, name: str, value: str, message: str
) -> None:
    with pytest.raises(OptionError, match=rf"^kafka\.{name}\b.*{message}"):
        kafka_options.check(known, {f"kafka.{name}": value})


def test_no_option_is_both_taken_and_refused() -> None:
    for known in (SOURCE, SINK):
        assert not {*known.tuning, *known.effective} & known.refused.keys()
