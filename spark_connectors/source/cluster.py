"""The driver's view of a cluster: topics, and the starts and ends of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from treecast.middleware.api.discovery import Address, find_face

from ..errors import OptionError, ReadError
from .offsets import EARLIEST, LATEST, Offsets, Partition, TopicIds, names
from .options import Bound, SourceOptions, Subscription, client_config

if TYPE_CHECKING:
    from kafka import KafkaConsumer


class Cluster(Protocol):
    """The interface. Partitions that disappeared meanwhile are left out of an answer."""

    def partitions(self, subscription: Subscription) -> list[Partition]: ...

    def topic_ids(self, partitions: Iterable[Partition]) -> TopicIds:
        """Returns the ids of these topics, from the last call of `partitions`."""

    def beyond(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Returns partitions whose leader reports that their log ends before the offset."""

    def earliest(self, partitions: Iterable[Partition]) -> Offsets: ...

    def latest(self, partitions: Iterable[Partition]) -> Offsets: ...

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Returns the first offset at or after a time (ms); None if there is none."""

    def close(self) -> None: ...


def bootstrap_of(options: SourceOptions) -> str:
    """Returns the cluster's address: the option's, else this host's daemon."""
    return options.bootstrap or str(find_face("kafka"))


class KafkaCluster:
    """A `Cluster` by kafka-python's consumer, which reads nothing here. Raises ReadError if nobody
    answers.
    """

    def __init__(self, options: SourceOptions) -> None:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        self._bootstrap = bootstrap_of(options)
        self._error = KafkaError
        self._committed = options.isolation == "read_committed"
        try:
            self._consumer: KafkaConsumer = KafkaConsumer(
                bootstrap_servers=self._bootstrap.split(","),
                isolation_level=options.isolation,
                enable_auto_commit=False,
                **client_config(options.client),
            )
        except (KafkaError, OSError, ValueError) as error:
            raise ReadError(f"no Kafka face answers at {self._bootstrap}: {error}") from error
        except AssertionError as error:
            raise OptionError(f"an option kafka.* is wrong: {error}") from error

    def partitions(self, subscription: Subscription) -> list[Partition]:
        """Returns partitions of existing topics; a topic subscribed by name is not created."""
        known = set(self._ask(self._consumer.topics))
        if subscription.partitions:
            wanted = {partition.topic for partition in subscription.partitions}
        else:
            wanted = {topic for topic in known if subscription.takes(Partition(topic, 0))}
        found = [
            Partition(topic, number)
            for topic in sorted(wanted & known)
            for number in sorted(self._ask(self._consumer.partitions_for_topic, topic) or ())
        ]
        return [partition for partition in found if subscription.takes(partition)]

    def topic_ids(self, partitions: Iterable[Partition]) -> TopicIds:
        cluster = self._consumer._client.cluster
        topics = {partition.topic for partition in partitions}
        return {topic: str(found) for topic in topics if (found := cluster.topic_id(topic)) is not None}

    def beyond(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Returns partitions whose log ends before the offset. Kafka's clients ask leaders only. A reader of
        committed records gets the last stable offset, which is less than the log's end: then nothing can be
        concluded.
        """
        if self._committed:
            return set()
        ends = self.latest(offsets)
        return {partition for partition, end in ends.items() if end < offsets[partition]}

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        return self._offsets(self._consumer.beginning_offsets, partitions)

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        return self._offsets(self._consumer.end_offsets, partitions)

    def _offsets(self, call: Callable[..., Any], partitions: Iterable[Partition]) -> Offsets:
        from kafka import TopicPartition

        asked = [TopicPartition(*partition) for partition in partitions]
        found = self._ask(call, asked) if asked else {}
        return {Partition(part.topic, part.partition): offset for part, offset in found.items()}

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        from kafka import TopicPartition

        asked = {TopicPartition(*partition): time for partition, time in times.items()}
        found = self._ask(self._consumer.offsets_for_times, asked) if asked else {}
        return {
            Partition(part.topic, part.partition): None if answer is None else answer.offset
            for part, answer in found.items()
        }

    def _ask(self, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except (self._error, OSError) as error:
            raise ReadError(f"the cluster at {self._bootstrap} does not answer: {error}") from error

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def resolve(cluster: Cluster, partitions: Iterable[Partition], bound: Bound, option: str) -> Offsets:
    """Returns the offset of each partition that `bound` means.

    Raises OptionError if it names partitions that are not read, or a time that nothing is at or after.
    """
    read = list(partitions)
    strange = (set(bound.offsets) | set(bound.times)) - set(read)
    if strange:
        raise OptionError(f"{option} names {names(strange)}, which the query does not read")
    times = dict.fromkeys(read, bound.time) if bound.time is not None else dict(bound.times)
    at_times = cluster.at_times({partition: time for partition, time in times.items() if time is not None})
    wanted = {partition: bound.offsets.get(partition, bound.everywhere) for partition in read}
    for partition in times:
        offset = at_times.get(partition)
        if offset is None and bound.strict_time:
            raise OptionError(
                f"{option}: {partition} has no record at or after {times[partition]}; set "
                "startingOffsetsByTimestampStrategy to latest to begin at its end"
            )
        wanted[partition] = LATEST if offset is None else offset
    return _numbers(cluster, wanted)


def _numbers(cluster: Cluster, wanted: Mapping[Partition, int]) -> Offsets:
    """Returns the offsets with EARLIEST and LATEST asked for."""
    found = dict(wanted)
    found.update(cluster.earliest(part for part, offset in wanted.items() if offset == EARLIEST))
    found.update(cluster.latest(part for part, offset in wanted.items() if offset == LATEST))
    return found


def address_of(text: str) -> Address:
    """Returns the first address of a bootstrap list."""
    try:
        return Address.parse(text.split(",")[0])
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers: {error}") from None
