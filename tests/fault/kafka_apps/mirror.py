"""MirrorMaker 2 from one daemon to another, in its dedicated mode, with exactly-once (KIP-710)."""

from __future__ import annotations

from dataclasses import dataclass

from bench.core.ports import free_port

from .records import Feeder, Reader, make_topics
from .site import Account, App, Worker, account, properties

PARTITIONS = 4
TOPIC = "source"


@dataclass
class Mirror(App):
    """The daemons `near` and `far`; the mirrored topic is `near.source` at `far`."""

    name = "MirrorMaker 2"

    def start(self) -> None:
        near, far = self.daemon("near").kafka, self.daemon("far").kafka
        make_topics(near, {TOPIC: PARTITIONS})
        self.feeder = Feeder(near, TOPIC, PARTITIONS, self.rate)
        self.reader = Reader(far, f"near.{TOPIC}")
        support = "enabled" if self.once else "disabled"
        settings = {
            "clusters": "near, far",
            "near.bootstrap.servers": near,
            "far.bootstrap.servers": far,
            "near->far.enabled": "true",
            "near->far.topics": TOPIC,
            "far->near.enabled": "false",
            "near.exactly.once.source.support": support,
            "far.exactly.once.source.support": support,
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_port()}",
            "offset.flush.interval.ms": "1000",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "2000",
        }
        path = properties(self.folder / "mm2.properties", settings)
        words = ["org.apache.kafka.connect.mirror.MirrorMaker", str(path)]
        self.workers.append(Worker("mirror", words, self.folder))
        self.workers[-1].start()

    def accounts(self) -> list[Account]:
        self.reader.look()
        mirrored = [value for _, value in self.reader.records]
        return [account("mirrored topic", self.feeder.values, mirrored, exact=True)]
