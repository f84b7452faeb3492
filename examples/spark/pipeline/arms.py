"""The ways to choose trees: none, the manager's own `adapt`, the pipeline, the best one in hindsight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.control.advice.following import Advised
from treecast.middleware.control.advice.place import AdviceFile
from treecast.middleware.control.advice.rules import Adviser, KeptAdvice, Limits, Verdict
from treecast.middleware.control.trees.adapting import Observed, better_trees
from treecast.middleware.control.trees.advised import ManagedTrees
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.daemon.telemetry import Reporter
from treecast.middleware.evaluation.label_network import LabelNetwork
from treecast.middleware.fabric.carriers.labels import Labels
from treecast.middleware.model.filter_tally import ChangesTaken, FiltersTaken, FilterTally
from treecast.middleware.model.records import Record
from treecast.middleware.model.tally import Hosts, Pair, Standing, Taken, Tally
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.virtual.candidates import Weights, best, judge
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.update import plan
from treecast.spark_connectors.pipeline.planning import Settings

LIMIT: Final = 4  # rules per switch
NETWORK: Final = "demo"
INTERVALS: Final = 3  # per round


class Counting:
    """`daemon.telemetry.Counting` of a label carrier in the emulator. `filters_here`: what filters judge."""

    def __init__(self, carrier: Labels) -> None:
        self._carrier = carrier
        self.filters_here = FilterTally(lambda: 0)
        carrier.tally = Tally()

    def taken(self) -> Iterator[tuple[str, Taken, Callable[[Hosts], list[str]]]]:
        assert self._carrier.tally is not None
        yield self._carrier.name, self._carrier.tally.take(), self._carrier.names

    def accounts(self) -> Iterator[tuple[Pair, Standing]]:
        return iter(())

    def filters(self) -> tuple[FiltersTaken, Callable[[int], str]]:
        return self.filters_here.take(), lambda host: self._carrier.names((host,))[0]

    def changes(self) -> ChangesTaken:
        return ChangesTaken()

    def sent_again(self) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
        return iter(())


class EmulatedHosts:
    """The hosts and switches of the pipeline's arm, in the emulator, with telemetry and a tree manager."""

    def __init__(self, network: Network, address: str, folder: Path, seed: int) -> None:
        self.cloud = LabelNetwork(network, seed)
        self.own = OwnTopics(address)
        began = time.time()
        carriers = self.cloud.carriers.items()
        self._reporters = [
            Reporter(network.names[host], 1, Counting(carrier), began) for host, carrier in carriers
        ]
        self.manager = TreeManager(
            network,
            self.cloud.switches(),
            self.cloud,
            MemoryStore(),
            limit=LIMIT,
            life=0.1,
            sleep=self.cloud.sleep,
        )
        kept = AdviceFile(folder / "advice.json")
        managed = ManagedTrees(self.manager)
        self.advised = Advised(NETWORK, managed, Adviser(Limits(), KeptAdvice()), self.own, kept)

    def begin(self) -> None:
        asyncio.run(self._begin())

    async def _begin(self) -> None:
        await self.manager.start()
        await self.advised.begin()

    def send(self, packets: int) -> int:
        """Sends packets in some intervals, and writes the hosts' telemetry about them. Returns the intervals
        written.
        """
        records = []
        for _ in range(INTERVALS):
            self.cloud.pass_time(1.0, packets // INTERVALS)
            records += self._records()
        self._write(records)
        return len(records)

    def _records(self) -> list[Record]:
        """Ends an interval of every host."""
        now = time.time()
        return [reporter.record(now) for reporter in self._reporters]

    def _write(self, records: list[Record]) -> None:
        for record in records:
            key = (record.key or b"").decode()
            place = topics.place_of(key, topics.PARTITIONS[topics.SENDS])
            self.own.put(topics.SENDS, key, record.value, place)

    def follow(self) -> list[Verdict]:
        """Lets the manager look for advice. What is sent meanwhile has an interval of its own."""
        verdicts = asyncio.run(self.advised.look())
        self._write(self._records())
        return verdicts

    def lost(self) -> int:
        """Returns the packets that did not reach each of their receivers once."""
        return sum(got != sent for got, sent in zip(self.cloud.got(), self.cloud.sent, strict=True))


class Adapting:
    """The tree manager's own loop: it sees the same counts, and halves what is older."""

    def __init__(self, network: Network, seed: int, fewest: int) -> None:
        self.rules = RuleBase(network, LIMIT)
        self._seen = Observed(network, fewest)
        self._rng = Random(seed)
        self._sample = fewest

    def look(self, counts: Mapping[str, Mapping[tuple[str, ...], int]]) -> bool:
        self._seen.add(counts)
        trees = better_trees(self.rules, self._seen, self._rng, self._sample)
        if trees is not None:
            self.rules = plan(self.rules, trees).rules
        return trees is not None


def in_hindsight(network: Network, wanted: Weights, settings: Settings) -> Any:
    """Returns the best outcome of all strategies that know exactly what a phase sends."""
    bare = RuleBase(network, LIMIT)
    return best(judge(bare, wanted, wanted, trial, Random(trial.seed)) for trial in settings.trials())
