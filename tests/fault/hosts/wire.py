"""The traffic on a publisher's link for 1, 3 and 7 subscribing hosts, by multicast and by unicast.

Bytes are the link's own counters. A starved receiver has its losses repaired, and its readers ask the leader
meanwhile, on the channel. That cost is taken from the product's counters (`treecast streams`, `treecast
status`), shown in separate rows, and not attributed to the carrier.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .ends import SETTLE_S, compare
from .ledger import Ledger, merged
from .result import Options, Result
from .site import Amiss, Consuming, HostDaemon, Producing, Site, wait_for, workers

# (name, milliseconds and bytes that a batch waits for, maximum bytes on the link per published byte)
BATCHES = (("batches of 2 ms", 2, 1_000_000, 1.25), ("batches of 64 KiB", 500, 65_536, 1.15))
CARRIERS = ("ip-multicast", "unicast")
ETHERNET_IP_UDP = 14 + 20 + 8
STARE = 8  # bytes before the segment if it goes to a group
AGAIN = ("repair", "replay", "skip")
_HOLD_S = 0.5  # a state that lasts this long is settled


@dataclass
class Sent:
    """Bytes on the publisher's link since the start, and the product's own counts by purpose."""

    link: int
    purposes: dict[str, int]
    channel: int

    def minus(self, before: Sent) -> Sent:
        by = {name: size - before.purposes.get(name, 0) for name, size in self.purposes.items()}
        return Sent(self.link - before.link, by, self.channel - before.channel)

    @property
    def again(self) -> int:
        return sum(self.purposes.get(name, 0) for name in AGAIN)


@dataclass
class Measuring:
    """Measures one carrier with a topic and hosts that subscribe one after the other."""

    site: Site
    options: Options
    result: Result
    carrier: str
    publisher: str
    consumers: list[Consuming] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"load-{self.carrier}"

    @property
    def published(self) -> int:
        return sum(ledger.count for ledger in self.ledgers)

    @property
    def daemon(self) -> HostDaemon:
        return self.site.daemons[self.publisher]

    def run(self) -> None:
        self.site.create_topic(self.topic, 1, self.publisher)
        others = [name for name in self.site.names if name != self.publisher]
        try:
            self._produce(1000, *BATCHES[0][1:3])  # before the first subscription, so that none of it is live
            for subscribers in self.options.subscribers:
                new = others[len(self.consumers) : subscribers]
                self.consumers += [Consuming(self.site, host, self.topic, 1) for host in new]
                self._earn()
                for name, wait_ms, size, most in BATCHES:
                    self._measure(name, wait_ms, size, most)
            compare(merged(self.ledgers), self.consumers, self.result)
        finally:
            with workers(*self.consumers):
                pass

    def _earn(self) -> None:
        """Produces until the topic's rate earns it a group."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            self._produce(300, *BATCHES[0][1:3])
            try:
                return wait_for(self._ready, "the carrier", 15.0, _HOLD_S)
            except Amiss:
                continue  # nobody was live yet, so the records were replayed
        raise Amiss(f"{self.topic} is not on {self.carrier} at {len(self.consumers)} hosts: {self._state()}")

    def _produce(self, records: int, wait_ms: int, batch: int) -> None:
        load = Producing(
            self.site,
            self.publisher,
            self.topic,
            1,
            len(self.ledgers),
            size=self.options.size,
            rate=self.options.rate,
            count=records,
            wait_ms=wait_ms,
            batch=batch,
        )
        with workers(load):
            self.ledgers.append(load.result(SETTLE_S + self.options.seconds))

    def _measure(self, name: str, wait_ms: int, batch: int, most: float) -> None:
        """Measures between two settled states."""
        options, result = self.options, self.result
        records = int(options.rate * options.seconds)
        before = self._settled()
        self._produce(records, wait_ms, batch)
        sent = self._settled().minus(before)
        copies = len(self.consumers) if self.carrier == "unicast" else 1
        what = f"{self.carrier}, {len(self.consumers)} hosts, {name}"
        share = {key: size / (records * options.size) for key, size in sent.purposes.items()}
        again = sent.again / (records * options.size)
        asked = sent.channel / (records * options.size)
        ratio = sent.link / (records * options.size) - again - asked
        result.row(f"{what}: bytes on the publisher's link / bytes published", f"{ratio:.3f}")
        result.row(f"{what}: repaired and replayed beside it", f"{again:.3f}")
        result.row(f"{what}: on channels beside it", f"{asked:.3f}")
        result.data[what] = {"link": ratio, "again": again, **share, "channel": asked}
        if not copies <= ratio <= copies * most:
            result.problems.append(
                f"{what}: {ratio:.3f} times the published bytes on the publisher's link instead of {copies} "
                f"to {copies * most:.2f}, beside repairs; {result.data[what]}; {self._state()}"
            )

    # --- counters of the publisher

    def _stream(self) -> dict[str, Any] | None:
        """Returns the topic's stream as its origin sees it."""
        found = [
            stream
            for stream in self.daemon.treecast("streams", self.topic)
            if stream["outgoing"] and stream["accounts"]
        ]
        return found[-1] if found else None

    def _state(self) -> object:
        stream = self._stream()
        return stream and [
            {key: row[key] for key in ("host", "state", "carrier", "repaired", "replayed", "outstanding")}
            for row in stream["accounts"]
        ]

    def _ready(self) -> bool:
        """Returns whether every subscriber is live on the expected carrier and has everything."""
        stream = self._stream()
        if stream is None or any(consumer.read < self.published for consumer in self.consumers):
            return False
        # a single receiver gets its copy by unicast
        carrier = self.carrier if len(self.consumers) > 1 else "unicast"
        live = [
            row["host"]
            for row in stream["accounts"]
            if (row["state"], row["carrier"], row["outstanding"]) == ("live", carrier, 0)
        ]
        return sorted(live) == sorted(consumer.host for consumer in self.consumers)

    def _settled(self) -> Sent:
        """Waits until everything has arrived and nothing was repeated for a moment; returns the bytes
        sent."""
        found: list[Sent] = []

        def held() -> bool:
            if not self._ready():
                found.clear()
                return False
            found.append(self._sent())
            return len(found) > 1 and found[-1].again == found[-2].again

        wait_for(held, f"{self.topic} to settle at {len(self.consumers)} hosts", SETTLE_S, _HOLD_S)
        return found[-1]

    def _sent(self) -> Sent:
        stream = self._stream()
        assert stream is not None
        purposes: dict[str, int] = {}
        for sent in stream["sent"]:
            header = ETHERNET_IP_UDP + (STARE if sent["carrier"] == "ip-multicast" else 0)
            size = sent["bytes"] + sent["packets"] * header
            purposes[sent["purpose"]] = purposes.get(sent["purpose"], 0) + size
        hosts = self.daemon.treecast("status")["hosts"]
        channel = sum(host["channel"]["bytes_out"] for host in hosts if host["channel"])
        link = self.site.link(self.publisher).look().counters["forward"].received_bytes
        return Sent(link, purposes, channel)


def wire(options: Options, folder: Path) -> Result:
    """The leader's daemon chooses the carrier, so only the publisher is restarted between the two
    measurements."""
    result = Result()
    with Site(folder, 8, seed=options.seed, python=options.python) as site:
        publisher = site.names[1]  # the first holds the coordinator
        for carrier in CARRIERS:
            if carrier == "unicast":
                site.daemons[publisher].stop()
                site.daemons[publisher].flags += ["--carrier", "unicast"]
                site.daemons[publisher].start()
            Measuring(site, options, result, carrier, publisher).run()
    return result
