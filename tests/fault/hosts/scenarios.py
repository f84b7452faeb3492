"""Scenarios with several hosts, and their required outcome. Each returns figures and problems."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from .burst import burst
from .disk_loss import disk_loss
from .ends import account, end
from .full_disk import full_disk
from .lan import lan
from .old_copy import old_copy
from .outage import outage
from .pace import progress
from .result import Options, Result
from .site import Consuming, Producing, Site, wait_for, workers
from .wire import wire

TOPIC = "load"


def loss(options: Options, folder: Path) -> Result:
    """Loss, reordering and duplication on every link, two producers, readers everywhere."""
    result = Result()
    with Site(folder, options.hosts, seed=options.seed, python=options.python) as site:
        first, second, *_ = site.names
        site.create_topic(TOPIC, 2, first)
        for host in site.names:
            site.link(host).change(loss=options.loss, reorder=options.loss, duplicate=options.loss)
        consumers = [Consuming(site, host, TOPIC, 2) for host in site.names]
        producers = [
            Producing(site, host, TOPIC, 2, number, size=options.size, rate=options.rate / 2)
            for number, host in enumerate((first, second))
        ]
        with workers(*producers, *consumers):
            progress(options, lambda: f"{sum(p.acked for p in producers):,} acknowledged", options.seconds)
            acknowledged = end(producers, consumers, result)
            account(site, result, addressed=acknowledged.count * (len(site.names) - 1))
        links = [site.link(host).look().counters for host in site.names]
        lost = sum(link[way].lost for link in links for way in ("forward", "backward"))
        result.row("frames lost on links", lost)
        if options.loss and not lost:
            result.problems.append("no link has lost a frame")
    return result


def kills(options: Options, folder: Path) -> Result:
    """Daemons, the coordinator's among them, are killed and restarted at random moments under load."""
    result = Result()
    rng = random.Random(options.seed)
    killed: dict[str, int] = {}
    with Site(folder, options.hosts, seed=options.seed, python=options.python) as site:
        loads = [_Load(site, options, f"{TOPIC}-{host}", host) for host in site.names[:2]]
        with workers(*(worker for load in loads for worker in load.workers)):
            for number in range(options.count):
                time.sleep(rng.uniform(0.2, 3.0))
                daemon = site.daemons[rng.choice(site.names)]
                daemon.kill()
                killed[daemon.host] = killed.get(daemon.host, 0) + 1
                time.sleep(rng.choice((0.0, rng.uniform(0.0, 2.0))))
                daemon.start()
                acked = sum(producer.acked for load in loads for producer in load.producers)
                options.say(f"{number + 1}/{options.count}: {daemon.host} killed; {acked:,} acknowledged")
            acknowledged = sum(end(load.producers, load.consumers, result).count for load in loads)
            account(site, result, addressed=acknowledged * (len(site.names) - 1))
    for host, times in sorted(killed.items()):
        result.row(f"kills of {host}", times)
    return result


class _Load:
    """A topic led by one host, two producers, and a reader on every host."""

    def __init__(self, site: Site, options: Options, topic: str, leader: str) -> None:
        site.create_topic(topic, 2, leader)
        self.consumers = [Consuming(site, host, topic, 2) for host in site.names]
        self.producers = [
            Producing(site, host, topic, 2, number, size=options.size, rate=options.rate / 4)
            for number, host in enumerate(site.names[:2])
        ]
        self.workers = [*self.consumers, *self.producers]


def leader(options: Options, folder: Path) -> Result:
    """A leader dies: producers elsewhere get a retriable error, consumers continue reading; it comes back."""
    result = Result()
    with Site(folder, 3, seed=options.seed, python=options.python) as site:
        first, leading, reader = site.names
        site.create_topic(TOPIC, 1, leading)
        early = Consuming(site, reader, TOPIC, 1)
        producer = Producing(site, first, TOPIC, 1, 1, rate=options.rate)
        with workers(producer, early):
            wait_for(lambda: early.read > options.rate, "records to arrive")
            known = producer.acked
            wait_for(lambda: early.read >= known, "the replica to catch up")
            site.daemons[leading].kill()
            answer = _produce_once(site, first)
            result.row("a produce to the dead leader's partition", answer)
            if answer not in _RETRIABLE.values():
                result.problems.append(f"not a retriable error, but {answer}")
            late = Consuming(site, reader, TOPIC, 1)
            with workers(late):
                wait_for(lambda: late.read >= known, "a new consumer to read the replica")
                result.row("read at a replica while the leader is dead", late.read)
                site.daemons[leading].start()
                wait_for(lambda: producer.acked > known + options.rate, "producing to continue")
                end([producer], [early, late], result)
            account(site, result)
    return result


_PRODUCE = """
import sys, json
sys.path.insert(0, sys.argv[1])
from crash import wire
connection = wire.Connection(sys.argv[2])
code, _ = wire.produced(connection.ask(wire.produce(sys.argv[3], 0, wire.build_batch([(b"k", b"v")]))))
print(json.dumps(code))
"""
_RETRIABLE = {5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER", 7: "REQUEST_TIMED_OUT"}


def _produce_once(site: Site, host: str) -> str:
    """Returns the name of the error that one produce at `host` gets."""
    crash = str(Path(__file__).resolve().parents[1])
    address = site.daemons[host].kafka
    done = site.lab.run(host, site.client_python, "-c", _PRODUCE, crash, address, TOPIC, timeout=60)
    code = json.loads(done.stdout)
    return _RETRIABLE.get(code, f"error {code}")


SCENARIOS: dict[str, Callable[[Options, Path], Result]] = {
    "loss": loss,
    "outage": outage,
    "kills": kills,
    "leader": leader,
    "disk-loss": disk_loss,
    "full-disk": full_disk,
    "old-copy": old_copy,
    "lan": lan,
    "wire": wire,
    "burst": burst,
}
