"""The folder of a pipeline, and the schemas of its tables.

    DIR/pipeline.json                  the pipeline's id
    DIR/lock                           held by the process that runs on this folder
    DIR/metrics.prom                   counters of the running pipeline, for Prometheus
    DIR/checkpoints/QUERY/             Spark's, one for each query
    DIR/plans/EPOCH.json               what an epoch's advice rests on, written before it is computed
    DIR/tables/bronze/topic=…/date=…/hour=…/     records as they came
    DIR/tables/silver_*/               each interval once, decoded
    DIR/tables/TABLE/epoch=N/          of one epoch; written again as a whole if the epoch is repeated
    DIR/tables/TABLE/slot=S/           of one minute by its start in seconds; again when late intervals come
    DIR/tables/TABLE/window=S/         of one window, the same
    DIR/clocks.json                    of each boot of a host: what the tables by minute take its clock for
    DIR/scratch/                       while minutes are computed: where and when each interval was

Times are microseconds since the Unix epoch where a name ends in `_us`; `timestamp` is the broker's append
time.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from treecast.middleware.storage.whole_file import write_whole

BRONZE: Final = "bronze"
INTERVALS: Final = "silver_intervals"
SENDS: Final = "silver_sends"
STREAMS: Final = "silver_streams"
FREQUENCY: Final = "silver_frequency"
SETS: Final = "silver_sets"
QUALITY: Final = "quality"
CANDIDATES: Final = "gold_candidates"
ADVICE: Final = "gold_advice"

FILTER_ADVICE: Final = "gold_filter_advice"

STREAMED: Final = (BRONZE, INTERVALS, SENDS, STREAMS)  # written by a query of their own
BY_EPOCH: Final = (FREQUENCY, SETS, QUALITY, CANDIDATES, ADVICE, FILTER_ADVICE)
MINUTES: Final = "silver_minutes"
STREAM_MINUTES: Final = "silver_stream_minutes"
HOST_MINUTES: Final = "silver_host_minutes"
FILTER_MINUTES: Final = "silver_filter_minutes"
CHANGE_MINUTES: Final = "silver_change_minutes"
REPAIR_MINUTES: Final = "silver_repair_minutes"
BY_SLOT: Final = (MINUTES, STREAM_MINUTES, HOST_MINUTES, FILTER_MINUTES, CHANGE_MINUTES, REPAIR_MINUTES)

CHURN: Final = "silver_churn"
CLUSTERS: Final = "silver_clusters"
TRAFFIC: Final = "gold_traffic"
TALKERS: Final = "gold_talkers"
UNREAD: Final = "gold_unread"
BEHIND: Final = "gold_behind"
MISSING: Final = "gold_missing"
LINKS: Final = "gold_links"
FORECAST: Final = "gold_forecast"
FILTERS: Final = "gold_filters"
MOVES: Final = "gold_moves"
REPAIRS: Final = "gold_repairs"
BY_WINDOW: Final = (
    CHURN,
    CLUSTERS,
    TRAFFIC,
    TALKERS,
    UNREAD,
    BEHIND,
    MISSING,
    LINKS,
    FORECAST,
    FILTERS,
    MOVES,
    REPAIRS,
)

_PLACE = "partition int, offset long, timestamp timestamp"
_INTERVAL = "host string, boot long, seq long, from_us long, to_us long"
_JUDGED = "patterns array<string>, filter string, filters int"
_COUNTS = "messages long, passed long, bytes long, passed_bytes long, cpu_us long"
_SAVED = f"{_JUDGED}, messages long, bytes long, saved_bytes long, share double, cpu_us long"
# Counts of filters by interval, before repetitions are left out.
_OF_INTERVAL = "host string, boot long, seq long, origin string, set string, open boolean"
JUDGED: Final = f"{_OF_INTERVAL}, {_JUDGED}, {_COUNTS}, {_PLACE}"
SCHEMAS: Final = {
    BRONZE: f"key binary, value binary, {_PLACE}, ingested timestamp, topic string, date date, hour int",
    INTERVALS: f"{_INTERVAL}, sampled double, packets long, bytes long, sets int, streams_left_out long,"
    f" records_left_out long, fault string, {_PLACE}, zone string",
    SENDS: f"{_INTERVAL}, sampled double, carrier string, set_id string, receivers array<string>,"
    " packets long, bytes long, header_bytes long, hop_labels long, stop_labels long, tree_labels long,"
    f" rule_version long, {_PLACE}",
    STREAMS: f"{_INTERVAL}, stream string, receiver string, addressed long, received long, filtered long,"
    f" lost long, {_PLACE}",
    CANDIDATES: "network string, strategy string, threshold double, seed long, labels double, rules long,"
    " rule_writes long, ms double, trees array<array<int>>, fault string",
    QUALITY: "check string, host string, value double, text string",
    ADVICE: "network string, value binary, digest string, strategy string, labels_now double,"
    " labels_expected double, rule_writes long, packets long, problem string",
    MINUTES: "slot long, host string, zone string, carrier string, set_id string, receivers array<string>,"
    " packets long, bytes long, header_bytes long, labels long",
    STREAM_MINUTES: "slot long, host string, stream string, receiver string, addressed long, received long,"
    " filtered long, lost long, repaired long, replayed long",
    FILTER_MINUTES: f"slot long, host string, origin string, set string, open boolean, {_JUDGED}, {_COUNTS}",
    CHANGE_MINUTES: "slot long, host string, client string, pattern string, filter string, begun long,"
    " ended long",
    REPAIR_MINUTES: "slot long, host string, stream string, carrier string, packets long, bytes long",
    FILTERS: f"window long, place int, origin string, host string, {_SAVED}",
    FILTER_ADVICE: f"place int, origin string, host string, {_SAVED}",
    MOVES: "window long, client string, source string, target string, pattern string, filter string",
    REPAIRS: "window long, publisher string, stream string, addressed long, repaired long, replayed long,"
    " lost long, share double, packets long, bytes long",
    HOST_MINUTES: "slot long, host string, zone string, intervals long, repeated long, sampled double,"
    " late_s double, clock_s double",
    CHURN: "window long, publisher string, receivers int, joined int, left int, jaccard double,"
    " half_life_s double",
    CLUSTERS: "window long, network string, cluster int, hub string, host string, weight long, dense boolean",
    TRAFFIC: "window long, by string, source string, target string, packets long, bytes long, records long",
    TALKERS: "window long, kind string, place int, name string, count long, share double",
    UNREAD: "window long, publisher string, stream string, addressed long, filtered long",
    BEHIND: "window long, host string, addressed long, waiting long, share double, seconds double",
    MISSING: "window long, host string",
    LINKS: "window long, network string, link string, packets long, bytes long, bits_per_s double,"
    " share double",
    FORECAST: "window long, network string, link string, share double, growth_per_hour double, fit double,"
    " hours double, text string",
}


# Places and times of intervals, as `minutes.timed` tells them, in DIR/scratch.
PLACES: Final = (
    "partition int, offset long, host string, zone string, boot long, seq long, sampled double, came long,"
    " at_us long, clock long, copy int, slot long, was long, hour long"
)
CLOCKS: Final = "host string, boot long, clock long, before long"  # errors in us; `before`: if it has fallen


class InUse(RuntimeError):
    """Another process runs on the folder."""


class Tables:
    """The folder of one pipeline, made if it does not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tables").mkdir(parents=True, exist_ok=True)
        self.plans = root / "plans"
        self.metrics = root / "metrics.prom"
        self.clocks = root / "clocks.json"
        self.scratch = str(root / "scratch")
        self.plans.mkdir(exist_ok=True)
        self._lock: int | None = None
        self.id = self._known_id()

    def _known_id(self) -> str:
        path = self.root / "pipeline.json"
        if not path.exists():
            write_whole(path, json.dumps({"id": secrets.token_hex(8)}).encode())
        return str(json.loads(path.read_bytes())["id"])

    def path(self, table: str) -> str:
        return str(self.root / "tables" / table)

    def of_epoch(self, table: str, epoch: int) -> str:
        return str(self.root / "tables" / table / f"epoch={epoch}")

    def checkpoint(self, query: str) -> str:
        return str(self.root / "checkpoints" / query)

    def make_way(self, query: str) -> bool:
        """Removes the checkpoint of a query that was killed before it had planned a batch: nothing has been
        read or written by it, and Spark refuses what is left of such an attempt for ever. Returns whether it
        did.
        """
        folder = Path(self.checkpoint(query))
        names = [path.name for path in (folder / "offsets").glob("*")]
        leftovers = bool(names) and not any(name.isdigit() for name in names)
        if leftovers:
            shutil.rmtree(folder)
        return leftovers

    def parts(self, table: str, by: str) -> list[int]:
        """Returns the minutes (`by` is slot) or windows that a table has, in ascending order."""
        return sorted(int(path.name.partition("=")[2]) for path in Path(self.path(table)).glob(f"{by}=*"))

    def forget(self, keep: int) -> int:
        """Removes minutes and windows that began more than `keep` seconds before the last minute, and returns
        their number. The archive stays, from which `measure` makes them again.

        The last minute and not today's time decides: a pipeline that was stopped for a month keeps what it
        had.
        """
        last = self.parts(HOST_MINUTES, "slot")[-1:]
        gone = 0
        for by, tables in (("slot", BY_SLOT), ("window", BY_WINDOW)):
            for table in tables:
                for part in self.parts(table, by):
                    if last and part < last[0] - keep:
                        shutil.rmtree(Path(self.path(table)) / f"{by}={part}")
                        gone += 1
        return gone

    def lock(self) -> None:
        """Holds the folder until the process ends. Raises InUse."""
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 20).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            self._lock = None
            raise InUse(
                f"process {holder} runs a pipeline on {self.root}: stop it, or give another --data folder"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def running(self) -> bool:
        """Whether some process holds the folder."""
        try:
            number = os.open(self.root / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(number)
        return False
