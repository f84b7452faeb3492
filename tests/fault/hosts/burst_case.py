"""One burst: a separate site, an origin that publishes at full speed, receivers that read everything."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cores import Place, keep_to
from .ends import LOAD, SETTLE_S, account, count
from .latency import Sample, Window
from .ledger import Ledger, differences
from .result import Options, Result
from .site import Consuming, Site, Worker, wait_for, workers
from .slowed import Slowed, cpu_seconds

STANDING_S, STANDING_RATE = 6.0, 100.0  # the records before a burst to a standing group
SMALL, SMALL_RATE, SMALL_SIZE = "small", 100.0, 100
TOPIC = f"{LOAD}-burst"
PURPOSES = ("group data", "unicast data", "repair", "replay", "others")
_ASKED = ("treecast_relay_proxied_read_bytes_total", "treecast_relay_stalled_replicas_total")
_LOOK_S = 0.01
_PREPARE_S = 300.0  # time to encode the burst
_STUCK_S = 30.0  # without a new record while some are missing


@dataclass(frozen=True)
class Case:
    """The payload and its receivers. `slow`: the last receiver's share of the others' processor time."""

    receivers: int
    mb: float
    partitions: int = 1
    kind: str = "kafka"
    start: str = "fresh"
    carrier: str = "ip-multicast"
    slow: float = 0.0
    small: bool = False
    batch: int = 1_000_000  # bytes of a record batch
    zones: int = 0

    @property
    def name(self) -> str:
        by = f" by {self.carrier}" if self.carrier != Case.carrier else ""
        hosts = f"{self.receivers} host{'s' * (self.receivers > 1)}"
        where = f" in {self.zones} zones" if self.zones else ""
        parts = [f"{hosts}{where}{by}", f"{self.mb:g} MB", self.kind, self.start]
        parts += [f"{self.partitions} partitions"] if self.partitions > 1 else []
        parts += [f"batches of {self.batch:,}"] if self.batch != Case.batch else []
        parts += [f"one at {self.slow:g}"] if self.slow else []
        return ", ".join([*parts, "small stream"] if self.small else parts)


@dataclass
class Outcome:
    """The measurements. Times in seconds since the first record was sent, bytes on the origin's link."""

    case: Case
    payload: int
    seconds: dict[str, float]  # until the last record, by receiver
    read: dict[str, float]  # the share of all records that arrived, by receiver
    produced: float
    link: int
    link_early: int  # bytes when all receivers but the slow one had everything
    origin_cpu: float
    all_cpu: float
    delivered: dict[str, int]  # records by outcome: live, repaired, replayed, expired
    sent: dict[str, int]  # bytes of segments by purpose
    entered: dict[str, int]  # bytes that the router sent into each zone
    asked: int  # bytes that receivers' readers fetched from the leader by channels
    stalled: int  # times that a replica stalled
    samples: list[Sample] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    @property
    def copies(self) -> float:
        return self.link / self.payload

    @property
    def rates(self) -> list[float]:
        """Returns MB/s of the receivers that are not slowed, ascending."""
        fast = list(self.seconds)[: self.case.receivers - bool(self.case.slow)]
        return sorted(self.rate(host) for host in fast)

    def rate(self, host: str) -> float:
        return self.read[host] * self.payload / 1e6 / self.seconds[host]

    def as_json(self) -> dict[str, Any]:
        return {
            "payload": self.payload,
            "copies": round(self.copies, 4),
            "copies_early": round(self.link_early / self.payload, 4),
            "seconds": {host: round(value, 3) for host, value in self.seconds.items()},
            "entered": {zone: round(size / self.payload, 4) for zone, size in self.entered.items()},
            "produced_seconds": round(self.produced, 3),
            "origin_cpu": round(self.origin_cpu, 3),
            "all_cpu": round(self.all_cpu, 3),
            "sent": {what: round(size / self.payload, 4) for what, size in self.sent.items()},
            "asked": round(self.asked / self.payload, 4),
            "stalled": self.stalled,
            **self.delivered,
        }


class End(Worker):
    """A producer or reader of a burst."""

    def __init__(self, site: Site, host: str, case: Case, what: str, *limits: object) -> None:
        daemon = site.daemons[host]
        program, address = f"burst_{case.kind}.py", daemon.kafka if case.kind == "kafka" else daemon.mqtt
        super().__init__(site, host, program, what, address, TOPIC, case.partitions, *limits)

    @property
    def ready(self) -> bool:
        return bool(self.said.get("ready") or self.process.poll() is not None)

    @property
    def read(self) -> int:
        return int(self.said.get("read", 0))

    @property
    def acked(self) -> int:
        return int(self.said.get("acked", 0))


class Burst:
    """Runs a case at a site that is up."""

    def __init__(self, site: Site, case: Case, options: Options, result: Result) -> None:
        self.site = site
        self.case = case
        self.options = options
        self.result = result
        self.origin, *self.receivers = site.names
        self.records = max(1, round(case.mb * 1e6 / options.size))
        self.before = int(STANDING_S * STANDING_RATE) if case.start == "standing" else 0

    def run(self) -> Outcome:
        case, site = self.case, self.site
        if case.kind == "kafka":
            site.create_topic(TOPIC, case.partitions, self.origin)
        limits = ["--records", self.records, "--before", self.before, "--size", self.options.size]
        limits += ["--batch", case.batch] if case.kind == "kafka" else []
        producer = End(site, self.origin, case, "produce", *limits)
        readers = [End(site, host, case, "read") for host in self.receivers]
        with workers(producer, *readers), self._small() as small:
            wait_for(lambda: all(end.ready for end in (producer, *readers)), "both ends", _PREPARE_S)
            self._stand(producer, readers)
            for reader in readers:
                reader.tell(f"expect {self.before + self.records}")
            outcome = self._measure(producer, readers)
            self._compare(producer, readers)
            if small is not None:
                outcome.samples = small.samples
                outcome.windows = [self.idle, outcome.windows[0]]
        return outcome

    @contextlib.contextmanager
    def _small(self) -> Iterator[Consuming | None]:
        """Runs a second topic beside the burst. Its reader at the first receiver times each record.

        With zones all receivers read it, and the one at the last is timed.
        """
        if not self.case.small:
            yield None
            return
        site = self.site
        site.create_topic(SMALL, 1, self.origin)
        watching = self.receivers[-1] if self.case.zones else self.receivers[0]
        reader = Consuming(site, watching, SMALL, 1, watched=1)
        others = [Consuming(site, host, SMALL, 1) for host in self.receivers[:-1] if self.case.zones]
        address, limits = site.daemons[self.origin].kafka, ("--size", SMALL_SIZE, "--rate", SMALL_RATE)
        load = Worker(site, self.origin, "burst_kafka.py", "steady", address, SMALL, 1, *limits)
        with workers(load, reader, *others):
            if self.options.judged:  # otherwise the measurement is how long these two wait for a core
                ours = [load.process.pid, reader.process.pid]
                keep_to(os.sched_getaffinity(0), ours, Place.SOON)
            wait_for(lambda: reader.read > SMALL_RATE, "the small stream")
            yield reader
            load.close_input()
            sent = load.result(SETTLE_S)
            reader.tell(f"expect {sent.count}")
            self.result.problems += differences(sent, reader.result(SETTLE_S), f"small, {reader.host}")

    def _stand(self, producer: End, readers: list[End]) -> None:
        """Sends small records for a while, so that the group stands; with a small stream, measures it without
        load."""
        if self.before:
            producer.tell(f"trickle {STANDING_RATE:g}")
            wait_for(lambda: min(end.read for end in readers) >= self.before, "the records before the burst")
        begun = time.monotonic()
        time.sleep(self.options.phase if self.case.small else 0.0)
        self.idle = Window("idle", begun, time.monotonic())

    def _measure(self, producer: End, readers: list[End]) -> Outcome:
        site, case = self.site, self.case
        daemons = list(site.daemons.values())
        cpu = [cpu_seconds(daemon.process.pid) for daemon in daemons]
        link, delivered, sent = self._link(), self._delivered(), self._sent()
        asked, stalled = self._asked()
        entered = site.entered() if case.zones else {}
        whole = self.before + self.records
        with Slowed(daemons, case.slow) as slowed:
            producer.tell("go")
            fast = readers[: len(readers) - bool(case.slow)]
            self._wait(fast, whole)
            early = self._link()
            slowed.others_are_done()
            self._wait(readers[len(fast) :], whole)
        wait_for(lambda: producer.acked >= whole or producer.process.poll() is not None, "all answers")
        self._accounts()
        begun = float(producer.said.get("begun", 0.0))
        now_asked, now_stalled = self._asked()
        spent = [cpu_seconds(one.process.pid) - was for one, was in zip(daemons, cpu, strict=True)]
        return Outcome(
            case,
            self.records * self.options.size,
            {end.host: float(end.said.get("last", 0.0)) - begun for end in readers},
            {end.host: end.read / whole for end in readers},
            float(producer.said.get("last", 0.0)) - begun,
            self._link() - link,
            early - link,
            spent[0],
            sum(spent),
            {way: records - delivered[way] for way, records in self._delivered().items()},
            {what: size - sent[what] for what, size in self._sent().items()},
            {zone: size - entered[zone] for zone, size in (site.entered() if case.zones else {}).items()},
            now_asked - asked,
            now_stalled - stalled,
            windows=[Window("burst", begun, max(float(end.said.get("last", 0.0)) for end in fast))],
        )

    def _wait(self, readers: list[End], whole: int) -> None:
        """Waits until all have everything, or have ended, or none has progressed for long."""
        done, deadline = -1, 0.0
        while any(end.read < whole and end.process.poll() is None for end in readers):
            now = sum(end.read for end in readers)
            if now != done:
                done, deadline = now, time.monotonic() + _STUCK_S
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)

    def _compare(self, producer: End, readers: list[End]) -> None:
        sent: Ledger = producer.result(SETTLE_S)
        self.result.problems += [f"{self.case.name}: {problem}" for problem in sent.problems]
        for reader in readers:
            reader.close_input()
            who = f"{self.case.name}: {reader.host}"
            self.result.problems += differences(sent, reader.result(SETTLE_S), who)

    def _accounts(self) -> None:
        """Checks that all accounts close and report exactly what was sent, but for the small stream."""
        own = Result()
        addressed = (self.before + self.records) * self.case.receivers if self.case.kind == "kafka" else None
        account(self.site, own, addressed=addressed, running=SMALL if self.case.small else "")
        self.result.problems += [f"{self.case.name}: {problem}" for problem in own.problems]

    def _link(self) -> int:
        return self.site.lab.counters(self.origin)["tx_bytes"]

    def _streams(self) -> list[dict[str, Any]]:
        """Returns the burst's own streams at its origin."""
        found = self.site.daemons[self.origin].treecast("streams")
        return [s for s in found if s["outgoing"] and s["name"].startswith((TOPIC, "mqtt"))]

    def _delivered(self) -> dict[str, int]:
        """Returns records of all receivers together, by outcome."""
        ways = {"live": 0, "repaired": 0, "replayed": 0, "expired": 0, "refused": 0}
        for stream in self._streams():
            for row in stream["accounts"]:
                for way in ways:
                    ways[way] += count(row[way])
        return ways

    def _sent(self) -> dict[str, int]:
        """Returns bytes by purpose; live data to a group and to single hosts apart."""
        purposes = dict.fromkeys(PURPOSES, 0)
        for stream in self._streams():
            for row in stream["sent"]:
                apart = "unicast data" if row["carrier"] == "unicast" else "group data"
                what = apart if row["purpose"] == "data" else row["purpose"]
                purposes[what if what in purposes else "others"] += row["bytes"]
        return purposes

    def _asked(self) -> tuple[int, int]:
        """Returns (bytes that all hosts fetched from leaders by channels, times that a replica stalled)."""
        found = [daemon.metrics() for daemon in self.site.daemons.values()]
        size, stalled = (sum(one.get(name, 0) for one in found) for name in _ASKED)
        return int(size), int(stalled)


def measure(case: Case, options: Options, folder: Path, result: Result) -> Outcome:
    """Measures one case and adds its problems to those of `result`."""
    flags = ["--carrier", case.carrier] if case.carrier != "ip-multicast" else []
    with Site(
        folder,
        case.receivers + 1,
        relayed=(),
        seed=options.seed,
        python=options.python,
        flags=flags,
        mqtt=case.kind == "mqtt",
        zones=case.zones,
    ) as site:
        return Burst(site, case, options, result).run()


__all__ = ["PURPOSES", "Case", "Outcome", "measure"]
