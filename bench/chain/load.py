"""One load on a route, from an order in plain values to a result in plain values."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bench.core.chain import Route
from treecast.middleware.load.connection import Connection
from treecast.middleware.load.frames import LoadError

from . import amqp, kafka
from .ends import Sink, Source
from .loops import throughput
from .paced import at_rate
from .rate import FixedRate
from .stamp import Arrivals

BURST = 1024  # frames that may be stamped and not yet sent


@dataclass(frozen=True, slots=True)
class Order:
    """An order. `rate` 0 measures throughput, otherwise latency at that many records a second."""

    route: Route
    records: int
    size: int
    rate: float = 0
    batch_bytes: int = 16_384  # the Java client's default batch.size
    warmup: float = 0.2  # the share of a run at a rate that is not counted

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "route": self.route.as_json()}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Order:
        return cls(**{**found, "route": Route.from_json(found["route"])})


def prepare(order: Order) -> Callable[[], dict[str, Any]]:
    """Connects and encodes. Returns the function that runs the load to its end."""
    return _prepare_rate(order) if order.rate else _prepare_throughput(order)


def _prepare_throughput(order: Order) -> Callable[[], dict[str, Any]]:
    source: Source
    sink: Sink
    if order.route.protocol == "kafka":
        sink = kafka.KafkaSink(order.route)
        source = kafka.KafkaSource.blasting(order.route, order.size, order.batch_bytes)
        window = kafka.WINDOW
    else:
        sink = amqp.AmqpSink(order.route)
        source = amqp.AmqpSource.blasting(order.route, order.size)
        window = amqp.WINDOW
    frames = max(1, round(order.records / source.per_frame))

    def run() -> dict[str, Any]:
        with contextlib.closing(source), contextlib.closing(sink):
            return asdict(throughput(source, sink, frames, window))

    return run


def _prepare_rate(order: Order) -> Callable[[], dict[str, Any]]:
    source, sink = stamped_ends(order.route, order.size, order.records)
    warmup = int(order.records * order.warmup)
    # The native load counts offsets, which markers of transactions take as well.
    kind = FixedRate if order.route.committed else at_rate()
    paced = kind(source, sink, rate=order.rate, count=order.records, warmup=warmup)

    def run() -> dict[str, Any]:
        with contextlib.closing(source), contextlib.closing(sink):
            return asdict(paced.run())

    return run


def stamped_ends(route: Route, size: int, count: int, quiet: float = kafka.QUIET) -> tuple[Source, Sink]:
    """Returns a source of stamped records and the sink that accounts for `count` of them."""
    arrivals, copies = Arrivals(count), min(count, BURST)
    if route.protocol == "kafka":
        kafka_sink = kafka.KafkaSink(route, arrivals, quiet)
        return kafka.KafkaSource.stamping(route, size, copies), kafka_sink
    amqp_sink = amqp.AmqpSink(route, arrivals)
    return amqp.AmqpSource.stamping(route, size, copies), amqp_sink


def open_route(route: Route, wait: float = 120) -> float:
    """Creates the topic if the route speaks Kafka, and sends records until one has passed the whole route.

    A link between servers may carry only records sent after it is up, so one record is not enough; records
    before the first arrival do not matter. Returns the time of the arrival (time.monotonic), and waits a
    second for records in flight. Raises LoadError after `wait` seconds.
    """
    deadline = time.monotonic() + wait
    if route.protocol == "kafka":
        with Connection(*route.near) as connection:
            connection.create_topic(route.source, 1)
        _topic_at(route, deadline)
    source, sink = stamped_ends(route, 100, 10_000, quiet=0)
    with contextlib.closing(source), contextlib.closing(sink):
        number = 0
        while not sink.records:
            if time.monotonic() > deadline:
                raise LoadError(f"of {number} records none arrived at the far end within {wait:g} s")
            number += 1
            source.send_stamped(number, lambda _: time.monotonic_ns())
            _pump(source, sink, 0.1, until_first=True)
        came = time.monotonic()
        _pump(source, sink, 1.0)
        while route.committed and sink.records < number:  # all come: they must not count as those of a run
            if time.monotonic() > deadline:
                raise LoadError(f"{sink.records} of {number} records arrived at the far end")
            _pump(source, sink, 0.2)
    return came


def _topic_at(route: Route, deadline: float) -> None:
    """Waits until the far end knows the target and reports its end."""
    with Connection(*route.far) as connection:
        while error := _unknown(connection, route.target):
            if time.monotonic() > deadline:
                raise LoadError(f"topic {route.target} cannot be read at the far end (error {error})", error)
            time.sleep(0.05)


def _unknown(connection: Connection, topic: str) -> int:
    """Returns 0 once the topic's end can be requested, else the present error."""
    error, leaders = connection.metadata([topic]).topics.get(topic, (3, {}))
    if error or not leaders:
        return error or 5
    try:
        connection.offset(topic, 0)
    except LoadError as refused:
        if not refused.code:
            raise
        return refused.code
    return 0


def _pump(source: Source, sink: Sink, seconds: float, until_first: bool = False) -> None:
    """Receives at both ends for `seconds`, or until a record has arrived."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not (until_first and sink.records):
        time.sleep(min(left, 0.005))
        source.receive()
        sink.receive(time.monotonic_ns)
