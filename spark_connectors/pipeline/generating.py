"""An archive of telemetry as many hosts would have written it, of any size, from a seed.

    generate(spark, tables, Spec(hosts=2000, publishers=20_000, rows=100_000_000))

Rows are those of `silver_sends`: one for each interval and set of receivers. Each host has the sets of its
publishers, which prefer hosts near by in the list; some of them change from hour to hour. A few hosts have
clocks that are wrong, lose intervals, or repeat them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb

from . import tables as t

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import SparkSession

_ZONES: Final = 8
_MICRO: Final = 1_000_000
_HOUR: Final = 3600
_FEWEST, _MOST = 1, 6  # receivers of a set
_FAULTY: Final = 50  # one host in so many has a wrong clock, one loses intervals, one repeats them


class Spec(Struct, frozen=True):
    """`rows`: intervals times sets of receivers. `start`: of the first interval, seconds since the epoch.
    `seconds`: of an interval.
    """

    hosts: int = 2000
    publishers: int = 20_000
    rows: int = 1_000_000
    seed: int = 1
    start: int = 1_790_000_000
    seconds: int = 10

    @property
    def per_host(self) -> int:
        """Publishers of a host; each has two sets."""
        return max(1, self.publishers // self.hosts)

    @property
    def sets(self) -> int:
        return 2 * self.per_host

    @property
    def intervals(self) -> int:
        """Intervals of each host."""
        return max(1, round(self.rows / (self.hosts * self.sets)))


def host_name(number: int) -> str:
    return f"h{number:05d}"


@lru_cache(1 << 16)
def receivers_of(spec: Spec, host: int, number: int, hour: int) -> tuple[str, ...]:
    """Returns the receivers of a host's set in an hour; every tenth set has others in the next one."""
    moving = hour if number % 10 == 9 else 0
    rng = Random(f"{spec.seed} {host} {number} {moving}")
    count = min(rng.randint(_FEWEST, _MOST), spec.hosts - 1)
    found: set[int] = set()
    while len(found) < count:
        other = (host + round(rng.gauss(0, spec.hosts / 20 + 1))) % spec.hosts
        found |= {other} - {host}
    return tuple([host_name(one) for one in sorted(found)])


def interval(spec: Spec, host: int, seq: int) -> pb.TelemetryInterval:
    """Returns interval `seq` (from 1) of a host, by a clock that is right."""
    rng = Random(f"{spec.seed} {host} {seq} counts")
    begin = (spec.start + (seq - 1) * spec.seconds) * _MICRO
    message = pb.TelemetryInterval(
        v=topics.VERSION,
        host=host_name(host),
        zone=f"z{host * _ZONES // spec.hosts}",
        boot=1,
        seq=seq,
        from_us=begin,
        to_us=begin + spec.seconds * _MICRO,
        sampled=1.0,
    )
    hour = (seq - 1) * spec.seconds // _HOUR
    for number in range(spec.sets):
        receivers = receivers_of(spec, host, number, hour)
        packets = 1 + int(rng.random() * 2000 / (1 + number))
        size = packets * 900
        message.sets.add(
            carrier="labels",
            receivers=receivers,
            packets=packets,
            bytes=size,
            header_bytes=packets * (2 + 2 * len(receivers)),
            hop_labels=packets * len(receivers),
            rule_version=1,
        )
        message.packets += packets
        message.bytes += size
        if number % 2 == 0:
            lost = int(packets * 0.001)
            message.streams.add(
                stream=f"p{host * spec.per_host + number // 2}-0",
                receiver=receivers[0],
                addressed=packets,
                received=packets - lost,
                lost=lost,
            )
    return message


class Fault(Struct, frozen=True):
    """The faults of a host. `ahead`: seconds by which its clock is wrong."""

    ahead: int = 0
    loses: bool = False
    repeats: bool = False


def fault_of(host: int) -> Fault:
    """Returns what is wrong with a host: nothing, mostly."""
    kind = host % _FAULTY
    return Fault(600 if kind == 17 else 0, kind == 23, kind == 31)


def records_of(spec: Spec, host: int, seq: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yields (partition, offset, append time in us, value) of an interval: none if it was lost, two if it was
    repeated.
    """
    fault = fault_of(host)
    if fault.loses and seq % 20 == 0:
        return
    message = interval(spec, host, seq)
    came = message.to_us + 20_000 + host
    message.from_us += fault.ahead * _MICRO
    message.to_us += fault.ahead * _MICRO
    partition = topics.place_of(message.host, topics.PARTITIONS[topics.SENDS])
    place = 2 * ((seq - 1) * spec.hosts + host)  # an offset is used once in a partition, and rises with time
    value = topics.encode(message)
    yield partition, place, came, value
    if fault.repeats and seq % 30 == 0:
        yield partition, place + 1, came + 5 * _MICRO, value


def generate(spark: SparkSession, tables: t.Tables, spec: Spec) -> None:
    """Writes the archive in place of what is there."""
    from pyspark.sql import functions as f

    folder = Path(tables.path(t.BRONZE))
    shutil.rmtree(folder, ignore_errors=True)
    count = spec.hosts * spec.intervals
    parts = max(1, count // 20_000)
    schema = "key binary, value binary, partition int, offset long, came long"
    rows = spark.range(0, count, 1, parts).mapInPandas(partial(_made, spec=spec), schema)
    stamp = f.timestamp_micros("came")
    rows = rows.withColumns({"timestamp": stamp, "ingested": stamp, "topic": f.lit(topics.SENDS)})
    rows = rows.withColumns({"date": f.to_date("timestamp"), "hour": f.hour("timestamp")}).drop("came")
    rows.write.partitionBy("topic", "date", "hour").parquet(str(folder))


def _made(frames: Iterator[pandas.DataFrame], spec: Spec) -> Iterator[pandas.DataFrame]:
    """Runs in executors: numbers become records."""
    import pandas as pd

    for frame in frames:
        found = []
        for number in frame["id"]:
            host, seq = int(number) % spec.hosts, int(number) // spec.hosts + 1
            key = host_name(host).encode()
            found += [(key, value, *place) for *place, value in records_of(spec, host, seq)]
        yield pd.DataFrame(found, columns=["key", "value", "partition", "offset", "came"])
