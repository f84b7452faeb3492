"""An archive of 18 minutes in which interests shift twice, for the notebook and for trying SQL.

    shifting(spark, Tables(folder))

Ten emulated hosts as in the demo send to sets of receivers: uniform, nearby and distant ones, six minutes
each (the thesis' migrations, 6.6.1). A tree manager adapts once a minute. One host says nothing for seven
minutes, and two have clients with filters. Time is invented, so this takes seconds.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.control.trees.adapting import Observed, better_trees
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.daemon.telemetry import Reporter
from treecast.middleware.evaluation.label_network import LabelNetwork
from treecast.middleware.model.filter_tally import wishes_of
from treecast.middleware.routing.network import Network
from treecast.spark_connectors.pipeline import tables as t

from .arms import LIMIT, Counting
from .interests import PHASES, label_network, wishes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Came = tuple[str, str, bytes, float]  # topic, key, value, append time in seconds

START: Final = 1_790_000_040  # of the first minute
MINUTES: Final = 6  # of a phase
INTERVALS: Final = 6  # of a minute
PACKETS: Final = 12  # of an interval
SILENT: Final = range(8, 15)  # minutes in which one host says nothing
FILTERED: Final = ((0, "price > 100", 0.1), (1, 'unit == "EUR"', 0.6))  # host, filter, share that passes


class Shifting:
    """The hosts, their switches and their manager."""

    def __init__(self, seed: int = 1) -> None:
        self._network = label_network()
        self._seed = seed
        self._rng = Random(seed)
        self._cloud = LabelNetwork(self._network, seed)
        self._seen = Observed(self._network, INTERVALS * PACKETS)
        self._manager = TreeManager(
            self._network,
            self._cloud.switches(),
            self._cloud,
            MemoryStore(),
            limit=LIMIT,
            life=0.1,
            sleep=self._cloud.sleep,
        )
        self._counting = {host: Counting(carrier) for host, carrier in self._cloud.carriers.items()}
        self._reporters = {
            host: Reporter(self._network.names[host], 1, counting, START)
            for host, counting in self._counting.items()
        }

    async def records(self) -> list[Came]:
        """Returns all that is written in these minutes."""
        await self._manager.start()
        found = [(topics.TOPOLOGY, "demo", topics.encode(_described(self._network)), float(START))]
        minute = 0
        for phase in PHASES:
            self._cloud.wanted = wishes(self._network, phase, self._seed)
            for _ in range(MINUTES):
                found += self._minute(minute)
                await self._adapt()
                minute += 1
        return found

    def _minute(self, minute: int) -> list[Came]:
        found = []
        for number in range(1, INTERVALS + 1):
            now = START + 60.0 * minute + 60.0 / INTERVALS * number
            self._cloud.pass_time(1.0, PACKETS)
            self._judge()
            for host, reporter in self._reporters.items():
                record = reporter.record(now)
                silent = minute in SILENT and host == self._network.hosts[-1]
                if record.value is not None and not silent:
                    found.append((topics.SENDS, self._network.names[host], record.value, now + 0.05))
        return found

    def _judge(self) -> None:
        """Lets filters of two hosts judge what the last host publishes."""
        hosts = self._network.hosts
        for place, text, share in FILTERED:
            tally = self._counting[hosts[place]].filters_here
            for _ in range(10):
                passed = self._rng.random() < share
                tally.judged(hosts[-1] + 1, wishes_of({("stock/#", text)}, False), 200, passed, 0)

    async def _adapt(self) -> None:
        self._seen.add(self._cloud.observed())
        trees = better_trees(self._manager.rules, self._seen, self._rng, INTERVALS * PACKETS)
        if trees is not None:
            await self._manager.update(trees)


def _described(network: Network) -> pb.NetworkTopology:
    ends = [node for pair in network.ends for node in pair]
    message = pb.NetworkTopology(
        v=topics.VERSION, network="demo", names=network.names, hosts=network.hosts, ends=ends
    )
    message.rule_limit, message.rule_version = LIMIT, 1
    message.version = topics.topology_version(message.names, message.hosts, message.ends, LIMIT)
    return message


def shifting(spark: SparkSession, tables: t.Tables, seed: int = 1) -> int:
    """Writes the archive, and returns its number of records."""
    from pyspark.sql import functions as f

    came = asyncio.run(Shifting(seed).records())
    rows = [
        (key.encode(), value, 0, offset, int(at * 1_000_000), topic)
        for offset, (topic, key, value, at) in enumerate(came)
    ]
    schema = "key binary, value binary, partition int, offset long, came long, topic string"
    stamp = f.timestamp_micros("came")
    frame = spark.createDataFrame(rows, schema).withColumns({"timestamp": stamp, "ingested": stamp})
    frame = frame.withColumns({"date": f.to_date("timestamp"), "hour": f.hour("timestamp")}).drop("came")
    frame.coalesce(1).write.partitionBy("topic", "date", "hour").parquet(tables.path(t.BRONZE))
    return len(rows)
