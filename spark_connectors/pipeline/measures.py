"""Tables of windows, from minutes: who sends how much to whom, what changes, and what is wrong.

A window is named by its start in seconds and lasts `length`; windows begin every `step`. All counts are sums
over the minutes of a window, so a window that is computed again after late intervals came is as if they had
been in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.clusters import dense_regions, k_medoids
from treecast.middleware.routing.virtual.candidates import DENSE, REGIONS

from . import queries
from . import tables as t
from .advising import network_of
from .links import Loads, SetLoad

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame

Group = tuple[str, int, str, str, bool]  # network, number, hub, host, dense

BEHIND: Final = 0.1  # the share of a window's records that have not arrived, from which a host falls behind
TOP: Final = 10  # talkers of each kind
_LOADED: Final = ("window", "network", "link", "packets", "bytes")


def windowed(minutes: DataFrame, length: int, step: int) -> DataFrame:
    """Returns minutes once for each window that they are in."""
    from pyspark.sql import functions as f

    first = f.col("slot") - (length - step)
    return minutes.withColumn("window", f.explode(f.sequence(first, f.col("slot"), f.lit(step)))).drop("slot")


def _summed(frame: DataFrame, key: list[str], counts: list[str]) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.groupBy(*key).agg(*(f.sum(name).alias(name) for name in counts))


# --- what is sent


def sets(windows: DataFrame) -> DataFrame:
    """Returns packets, bytes and labels by window, publisher and set of receivers."""
    key = ["window", "host", "zone", "set_id", "receivers"]
    return _summed(windows, key, ["packets", "bytes", "header_bytes", "labels"])


def _to_receivers(sets_: DataFrame) -> DataFrame:
    """Returns packets and bytes by window, publisher and receiver: each receiver gets all of a set's."""
    from pyspark.sql import functions as f

    rows = sets_.select(
        "window", "host", "zone", "packets", "bytes", f.explode("receivers").alias("receiver")
    )
    return _summed(rows, ["window", "host", "zone", "receiver"], ["packets", "bytes"])


def zones(hosts: DataFrame, length: int) -> DataFrame:
    """Returns the zone of each host in each window, as it has said then, or in the window before."""
    from pyspark.sql import functions as f

    said = hosts.select("window", "host", "zone").distinct()
    before = said.select((f.col("window") + length).alias("window"), "host", "zone")
    known = said.unionByName(before).groupBy("window", "host")
    return known.agg(f.max("zone").alias("to_zone")).withColumnRenamed("host", "receiver")


def traffic(sets_: DataFrame, streams: DataFrame, hosts: DataFrame, length: int) -> DataFrame:
    """Returns `gold_traffic`: three matrices, by host, zone and topic."""
    from pyspark.sql import functions as f

    pairs = _to_receivers(sets_)
    none = f.lit(None).cast("long")
    by_host = pairs.select(
        "window",
        f.lit("host").alias("by"),
        f.col("host").alias("source"),
        f.col("receiver").alias("target"),
        "packets",
        "bytes",
        none.alias("records"),
    )
    zoned = pairs.join(zones(hosts, length), ["window", "receiver"], "left").fillna("", ["zone", "to_zone"])
    zoned = zoned.where("zone <> '' OR to_zone <> ''")
    by_zone = zoned.groupBy("window", "zone", "to_zone").agg(f.sum("packets"), f.sum("bytes"))
    by_zone = by_zone.toDF("window", "source", "target", "packets", "bytes").select(
        "window", f.lit("zone").alias("by"), "source", "target", "packets", "bytes", none.alias("records")
    )
    topic = f.regexp_replace("stream", r"-\d+$", "")  # a partition's stream is its topic and number
    topics_ = streams.groupBy("window", topic.alias("source"), f.col("receiver").alias("target"))
    by_topic = topics_.agg(f.sum("addressed").alias("records")).select(
        "window",
        f.lit("topic").alias("by"),
        "source",
        "target",
        none.alias("packets"),
        none.alias("bytes"),
        "records",
    )
    return by_host.unionByName(by_zone).unionByName(by_topic).select(*queries.columns(t.TRAFFIC))


def talkers(sets_: DataFrame, streams: DataFrame, top: int = TOP) -> DataFrame:
    """Returns `gold_talkers`: the hosts with most bytes, and the streams with most records, by window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    hosts = sets_.groupBy("window", f.col("host").alias("name")).agg(f.sum("bytes").alias("count"))
    named = streams.groupBy("window", f.col("stream").alias("name")).agg(f.sum("addressed").alias("count"))
    both = hosts.withColumn("kind", f.lit("host")).unionByName(named.withColumn("kind", f.lit("stream")))
    one = Window.partitionBy("window", "kind")
    both = both.withColumn("place", f.row_number().over(one.orderBy(f.desc("count"), "name")))
    both = both.withColumn("share", f.col("count") / f.sum("count").over(one))
    return both.where(f.col("place") <= top).select(*queries.columns(t.TALKERS))


def churn(sets_: DataFrame, length: int) -> DataFrame:
    """Returns `silver_churn`: how a publisher's receivers differ from those of the window that ended when
    this one began. The half-life is that of receivers that leave at a constant rate; none leaves: null.
    """
    from pyspark.sql import functions as f

    now = sets_.select("window", f.col("host").alias("publisher"), f.explode("receivers").alias("receiver"))
    now = now.groupBy("window", "publisher").agg(f.collect_set("receiver").alias("now"))
    before = now.select((f.col("window") + length).alias("window"), "publisher", f.col("now").alias("before"))
    both = now.join(before, ["window", "publisher"], "left").withColumns(
        {
            "joined": f.size(f.array_except("now", "before")),
            "left": f.size(f.array_except("before", "now")),
            "stayed": f.size(f.array_intersect("now", "before")),
        }
    )
    known = f.col("before").isNotNull()
    kept = f.col("stayed") / f.size("before")
    half = f.when(kept == 0, f.lit(0.0)).when(kept < 1, f.lit(-length * math.log(2)) / f.log(kept))
    both = both.withColumn("receivers", f.size("now")).withColumns(
        {
            "jaccard": f.when(known, f.col("stayed") / f.size(f.array_union("now", "before"))),
            "half_life_s": f.when(known, half),
            "joined": f.when(known, f.col("joined")),
            "left": f.when(known, f.col("left")),
        }
    )
    return both.select(*queries.columns(t.CHURN))


# --- what is wrong


def unread(streams: DataFrame) -> DataFrame:
    """Returns `gold_unread`: streams that were sent, and of which every record was filtered where it came."""
    from pyspark.sql import functions as f

    rows = _summed(streams, ["window", "host", "stream"], ["addressed", "received", "filtered"])
    rows = rows.where("received = 0 AND filtered > 0")
    return rows.select("window", f.col("host").alias("publisher"), "stream", "addressed", "filtered")


def behind(streams: DataFrame, length: int) -> DataFrame:
    """Returns `gold_behind`: receivers that records wait for, and in how many seconds these would arrive."""
    from pyspark.sql import functions as f

    counts = ["addressed", "received", "filtered", "lost"]
    rows = _summed(streams, ["window", "receiver"], counts)
    done = f.col("received") + f.col("filtered") + f.col("lost")
    rows = rows.withColumn("waiting", f.col("addressed") - done)
    rows = rows.withColumn("share", f.col("waiting") / f.col("addressed"))
    rows = rows.withColumn("seconds", f.when(done > 0, f.col("waiting") * length / done))
    rows = rows.where(f.col("share") >= BEHIND).withColumnRenamed("receiver", "host")
    return rows.select(*queries.columns(t.BEHIND))


def missing(hosts: DataFrame, length: int, named: list[str]) -> DataFrame:
    """Returns `gold_missing`: hosts without an interval in a window that some host was heard in. Expected are
    those of the window before, and those that the networks' descriptions name.
    """
    from pyspark.sql import functions as f

    heard = hosts.select("window", "host").distinct()
    before = heard.select((f.col("window") + length).alias("window"), "host")
    there = heard.select("window").distinct()
    known = there.crossJoin(hosts.sparkSession.createDataFrame([(one,) for one in named], "host string"))
    expected = before.unionByName(known).distinct().join(there, "window", "left_semi")
    return expected.join(heard, ["window", "host"], "left_anti").select(*queries.columns(t.MISSING))


def repairs(streams: DataFrame, again: DataFrame) -> DataFrame:
    """Returns `gold_repairs`: streams of which something had to be sent again, or was lost."""
    from pyspark.sql import functions as f

    counts = ["addressed", "repaired", "replayed", "lost"]
    key = ["window", "host", "stream"]
    both = _summed(streams, key, counts).join(_summed(again, key, ["packets", "bytes"]), key, "full")
    both = both.fillna(0, [*counts, "packets", "bytes"])
    wrong = f.col("repaired") + f.col("replayed") + f.col("lost")
    share = f.when(f.col("addressed") > 0, wrong / f.col("addressed")).otherwise(f.lit(0.0))
    both = both.where((wrong > 0) | (f.col("bytes") > 0)).withColumn("share", share)
    return both.withColumnRenamed("host", "publisher").select(*queries.columns(t.REPAIRS))


def moves(changes: DataFrame) -> DataFrame:
    """Returns `gold_moves`: clients that have ended a subscription at one host and begun it at another."""
    from pyspark.sql import functions as f

    key = ["window", "client", "pattern", "filter"]
    sums = _summed(changes, [*key, "host"], ["begun", "ended"])
    left = sums.where("ended > begun").select(*key, f.col("host").alias("source"))
    came = sums.where("begun > ended").select(*key, f.col("host").alias("target"))
    return left.join(came, key).select(*queries.columns(t.MOVES))


# --- networks


def links(sets_: DataFrame, networks: Mapping[str, bytes], length: int, bits_per_second: float) -> DataFrame:
    """Returns `gold_links`: what each link of each network carries, one copy for all receivers behind it."""
    from pyspark.sql import functions as f

    work = partial(_loaded, networks=dict(networks))
    rows = sets_.select("window", "host", "receivers", "packets", "bytes", "header_bytes")
    schema = "window long, network string, link string, packets long, bytes long"
    loads = _summed(rows.mapInPandas(work, schema), ["window", "network", "link"], ["packets", "bytes"])
    rate = f.col("bytes") * 8 / length
    loads = loads.withColumn("bits_per_s", rate).withColumn("share", rate / bits_per_second)
    return loads.select(*queries.columns(t.LINKS))


def _loaded(frames: Iterator[pandas.DataFrame], networks: dict[str, bytes]) -> Iterator[pandas.DataFrame]:
    """Runs in executors: sets become the links that their packets travel. Each frame is added up before it
    leaves: its rows are windows times links, however many sets it has.
    """
    loads = {name: Loads(topics.decode(pb.NetworkTopology, value)) for name, value in networks.items()}
    for frame in frames:
        sums: dict[tuple[int, str, str], tuple[int, int]] = {}
        for window, host, receivers, packets, size, header in frame.itertuples(index=False):
            one = SetLoad(host, tuple(receivers), int(packets), int(size) + int(header))
            for name, network in loads.items():
                for link in network.links(one):
                    key = (window, name, link)
                    before = sums.get(key, (0, 0))
                    sums[key] = (before[0] + one.packets, before[1] + one.size)
        yield from queries.framed(((*key, *counts) for key, counts in sums.items()), _LOADED)


def clusters(sets_: DataFrame, groups: Sequence[Group]) -> DataFrame:
    """Returns `silver_clusters`: hosts in groups, with the packets that each got."""
    from pyspark.sql import functions as f

    there = sets_.sparkSession.createDataFrame(
        list(groups), "network string, cluster int, hub string, host string, dense boolean"
    )
    got = _to_receivers(sets_).groupBy("window", f.col("receiver").alias("host"))
    return got.agg(f.sum("packets").alias("weight")).join(there, "host").select(*queries.columns(t.CLUSTERS))


def groups_of(networks: Mapping[str, bytes]) -> list[Group]:
    """Returns the hosts of each network in groups around central switches (the thesis, 6.5.2): network,
    number, switch, host, and whether its switch is in a dense region.
    """
    return [row for name, value in sorted(networks.items()) for row in _groups(name, value)]


def _groups(name: str, value: bytes) -> list[Group]:
    network = network_of(topics.decode(pb.NetworkTopology, value))
    groups = k_medoids(network, min(REGIONS, len(network.switches)), Random(0))
    dense = {node for region in dense_regions(network, groups, DENSE) for node in region}
    return [
        (name, number, network.names[group[0]], network.names[node], network.switch_of(node) in dense)
        for number, group in enumerate(groups)
        for node in group
        if node in network.hosts
    ]
