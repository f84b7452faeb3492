"""The pipeline with a real Spark, in a separate interpreter: `pipeline.py ADDRESS FOLDER`.

Four hosts: `a` is sound, but one interval comes twice; `b` loses one; `c` has a clock that is ten minutes
ahead; `d` is slow, so that its first three intervals come after the first epoch. Somebody writes bytes that
are no telemetry. Later an hour of `d` comes late, some of `a` comes twice, the operator chooses a strategy,
and a second pipeline is started by mistake. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.control.advice.rules import Adviser, KeptAdvice, Limits, Situation
from treecast.middleware.control.trees.advised import InstalledTrees
from treecast.middleware.routing.network import Network, build
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.spark_connectors.pipeline import tables as t
from treecast.spark_connectors.pipeline.planning import Settings
from treecast.spark_connectors.pipeline.running import EPOCHS, QUERIES, Pipeline, session
from treecast.spark_connectors.pipeline.showing import Shown

HOSTS = ("a", "b", "c", "d")
PACKETS = 10  # to each set in each interval
INTERVALS = 6
STRATEGIES = ("broadcast", "relation", "learned")
ADVISED = (t.BRONZE, EPOCHS)  # the queries that advice takes


def ring() -> Network:
    names = ["s0", "s1", "s2", "s3", *HOSTS]
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), *((n, 4 + n) for n in range(4))]
    return build(names, edges, hosts=range(4, 8))


class Telemetry:
    """Writes intervals of hosts; each sends to all others, and to one of them."""

    def __init__(self, own: OwnTopics) -> None:
        self._own = own

    def write(self, host: str, seq: int, *, ahead: float = 0.0, boot: int = 1) -> None:
        now = int((time.time() + ahead) * 1e6)
        others = [one for one in HOSTS if one != host]
        message = pb.TelemetryInterval(
            v=1,
            host=host,
            boot=boot,
            seq=seq,
            from_us=now - 10_000_000,
            to_us=now,
            sampled=1.0,
            packets=2 * PACKETS,
        )
        for receivers in (others, others[:1]):
            message.sets.add(
                carrier="labels", receivers=receivers, packets=PACKETS, bytes=1000, hop_labels=40
            )
        message.streams.add(stream="orders-0", receiver=others[0], addressed=5, received=5)
        message.filters_sampled = 1.0
        one = message.filters.add(origin="c", count=1, messages=10, passed=1, bytes=100, passed_bytes=10)
        one.wishes.add(pattern="t/+", filter=f"to == {host}")
        self._own.put(topics.SENDS, host, topics.encode(message), topics.place_of(host, 4))

    def describe(self, network: Network, strategy: str = "") -> None:
        ends = [node for pair in network.ends for node in pair]
        message = pb.NetworkTopology(
            v=1,
            network="ring",
            names=network.names,
            hosts=network.hosts,
            ends=ends,
            rule_limit=3,
            rule_version=1,
            strategy=strategy,
        )
        message.version = topics.topology_version(message.names, message.hosts, message.ends, 3)
        self._own.put(topics.TOPOLOGY, "ring", topics.encode(message))

    def first(self) -> None:
        for seq in range(1, INTERVALS + 1):
            self.write("a", seq)
            if seq != 4:
                self.write("b", seq)
            self.write("c", seq, ahead=600.0)
        self.write("a", 2)  # an answer was lost, and the record came twice
        self._own.put(topics.SENDS, "eve", b"\xff no telemetry")

    def advice(self) -> list[dict[str, Any]]:
        found = [topics.decode(pb.TreeAdvice, one.value or b"") for one in self._own.after(topics.ADVICE, 0)]
        return [
            {
                "epoch": one.epoch,
                "missing": list(one.hosts_missing),
                "packets": one.packets,
                "now": one.labels_now,
                "expected": one.labels_expected,
                "inputs": len(one.input),
            }
            for one in found
        ]


def rounds(pipeline: Pipeline, names: tuple[str, ...] = QUERIES) -> dict[str, int]:
    """Runs a round; what a busy machine has let fail is run again. Returns the rows by query."""
    rows = dict.fromkeys(names, 0)
    for _ in range(4):
        ran = pipeline.round(names)
        for one in ran:
            rows[one.query] += one.rows
        faults = [one for one in ran if one.fault]
        if not faults:
            return rows
    raise SystemExit(f"failed: {faults}")


def an_odd_hour(telemetry: Telemetry) -> None:
    """An hour of `d` comes late: it had been cut off, and goes on. Some of `a` comes twice."""
    for seq in range(1, 61):
        telemetry.write("d", seq, ahead=-60.0 * (100 - seq), boot=2)
    telemetry.write("d", 100, boot=2)
    for _ in range(2):
        for seq in range(7, 10):
            telemetry.write("a", seq)


def decided(own: OwnTopics) -> list[str]:
    """Returns what a manager decides about the last advice of the first pipeline, then of the second."""
    records = [one for one in own.after(topics.ADVICE, 0) if one.value]
    last = {topics.decode(pb.TreeAdvice, one.value or b"").pipeline: one for one in records}
    adviser, network = Adviser(Limits(), KeptAdvice()), ring()
    found = []
    for one in sorted(last.values(), key=lambda one: one.offset):
        advice = topics.decode(pb.TreeAdvice, one.value or b"")
        there, now = InstalledTrees(RuleBase(network, 3)), int(time.time() * 1e6)
        at = Situation("ring", advice.topology_version, advice.base_rule_version, there, now, "relation")
        verdict = adviser.weigh(one.offset, one.value, at)
        found.append(f"{verdict.decision.value}: {verdict.reason}")
    return found


def repeat_the_last_batch(tables: t.Tables) -> None:
    """Takes back Spark's note of the last batch, as a kill just before it would have."""
    commits = Path(tables.checkpoint(EPOCHS)) / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def main() -> None:
    address, folder = sys.argv[1], Path(sys.argv[2])
    own = OwnTopics(address)
    telemetry = Telemetry(own)
    spark = session("local[1]", 1)
    spark.sparkContext.setLogLevel("OFF")
    tables = t.Tables(folder / "pipe")
    settings, said = Settings(window=1200.0, seeds=(1,), strategies=STRATEGIES), []
    pipeline = Pipeline(tables, address, settings, spark, said.append)
    pipeline.prepare()
    telemetry.describe(ring())
    telemetry.first()
    found: dict[str, Any] = {"first": rounds(pipeline), "advice": telemetry.advice()}
    found["quality"] = [(one["check"], one["host"]) for one in Shown(tables).status().quality]
    repeat_the_last_batch(tables)
    rounds(pipeline, (EPOCHS,))
    found["said"] = list(said)
    found["advice after a kill"] = telemetry.advice()
    found["filters"] = [dict(one) for one in Shown(tables).explain().filters]
    for seq in range(1, 4):
        telemetry.write("d", seq)  # late by an epoch
    found["second"] = rounds(pipeline, (*t.STREAMED, EPOCHS))
    found["advice later"] = telemetry.advice()
    found["quality later"] = [(one["check"], one["host"]) for one in Shown(tables).status().quality]
    found["rows"] = {name: spark.read.parquet(tables.path(name)).count() for name in t.STREAMED}
    shares = (
        spark.read.parquet(tables.path(t.FREQUENCY)).where("publisher = 'a'").orderBy("epoch", "receiver")
    )
    found["shares"] = [
        (row["receiver"], row["sent"], row["received"], row["share"]) for row in shares.collect()
    ]
    an_odd_hour(telemetry)
    telemetry.describe(ring(), "relation")
    rounds(pipeline, ADVISED)
    found["advice after an odd hour"] = telemetry.advice()
    found["quality of an odd hour"] = [(one["check"], one["host"]) for one in Shown(tables).status().quality]
    last = telemetry.advice()[-1]["epoch"]
    tried = spark.read.parquet(tables.of_epoch(t.CANDIDATES, last)).select("strategy").distinct()
    found["strategies"] = sorted(row["strategy"] for row in tried.collect())
    second = Pipeline(t.Tables(folder / "second"), address, settings, spark, said.append)
    rounds(second, ADVISED)
    found["two pipelines"] = decided(own)
    found["replayed"] = [(one.network, one.equal) for one in pipeline.replay()]
    print("FOUND " + json.dumps(found))
    spark.stop()
    own.close()


if __name__ == "__main__":
    main()
