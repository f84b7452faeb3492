"""Which filter would save most, if the host that messages come from had it.

A host gets all messages of the topics that its clients subscribe to, and filters them itself. Those that pass
no filter of its clients would not have had to come: with all these filters (`or`) at the origin, they would
have stayed there. Bytes are those of topics, payloads and properties for one receiving host. A carrier with
one copy for several hosts saves less, unless all of them filter.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from treecast.middleware.api import telemetry as topics

from . import queries
from . import rows as decoding
from . import tables as t

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOP: Final = 100  # listed in an epoch, and in a window
_KEY: Final = ("origin", "host", "set", "open", "patterns", "filter", "filters")
_COUNTS: Final = ("messages", "passed", "bytes", "passed_bytes", "cpu_us")


def of_records(records: DataFrame) -> DataFrame:
    """Returns `gold_filter_advice`, from records of intervals with repetitions, of which the first counts."""
    from pyspark.sql import functions as f

    names = [part.split()[0] for part in t.JUDGED.split(", ")]
    work = partial(queries.decoded, rows_of=decoding.filter_rows, columns=names)
    judged = records.mapInPandas(work, t.JUDGED)
    kept = ("patterns", "filter", "filters", *_COUNTS)
    first = f.min(f.struct("partition", "offset", *kept)).alias("one")
    once = judged.groupBy("host", "boot", "seq", "origin", "set", "open").agg(first)
    sums = _summed(once.select("host", "origin", "set", "open", "one.*"), ())
    saving = _saving(sums).where("saved_bytes > 0 AND filter <> ''")
    return _placed(saving, ()).select(*queries.columns(t.FILTER_ADVICE))


def of_windows(windows: DataFrame) -> DataFrame:
    """Returns `gold_filters`: also filters that save nothing, as these cost time too."""
    saving = _saving(_summed(windows, ("window",)))
    return _placed(saving, ("window",)).select(*queries.columns(t.FILTERS))


def digest(advice: DataFrame) -> str:
    """Returns the digest of advice on filters, equal for live and replayed."""
    rows = [row.asDict(recursive=True) for row in advice.orderBy("place").collect()]
    return topics.digest(json.dumps(rows, sort_keys=True).encode())


def _summed(judged: DataFrame, by: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions as f

    return judged.groupBy(*by, *_KEY).agg(*(f.sum(name).alias(name) for name in _COUNTS))


def _saving(sums: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    comes: Column = (f.col("origin") != f.col("host")) & ~f.col("open")
    saved = f.when(comes, f.col("bytes") - f.col("passed_bytes")).otherwise(f.lit(0))
    share = f.when(f.col("bytes") > 0, saved / f.col("bytes")).otherwise(f.lit(0.0))
    return sums.withColumn("saved_bytes", saved.cast("long")).withColumn("share", share)


def _placed(saving: DataFrame, by: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    ordered = Window.partitionBy(*by).orderBy(
        f.desc("saved_bytes"), f.desc("cpu_us"), "origin", "host", "set"
    )
    return saving.withColumn("place", f.row_number().over(ordered)).where(f.col("place") <= TOP)
