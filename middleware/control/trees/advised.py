"""A tree manager that follows advice: describes its network in a topic, reads advice, and writes down what
became of it.

    advised = Advised(name, manager, adviser, OwnTopics(address), store)
    await advised.look()        # regularly

A daemon that cannot be reached, or a pipeline that is dead, changes nothing: the present trees stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import Found
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.virtual.rules import RuleBase

from .advice import Adviser, Decision, KeptAdvice, Situation, Verdict
from .manager import TreeManager

_log = Log(__name__)

_MICRO = 1_000_000


class Topics(Protocol):
    """The internal topics; `api.own_topics.OwnTopics` is one. Calls block."""

    def ensure(self, names: Iterable[str]) -> None: ...

    def put(self, topic: str, key: str, value: bytes | None) -> int: ...

    def after(self, topic: str, offset: int) -> list[Found]: ...


class AdviceStore(Protocol):
    """A durable store of `KeptAdvice`."""

    def save(self, kept: KeptAdvice) -> None: ...


class Advised:
    """The advice for one manager's network, called `name`."""

    def __init__(
        self,
        name: str,
        manager: TreeManager,
        adviser: Adviser,
        own: Topics,
        store: AdviceStore,
        clock: Callable[[], float] = time.time,
        *,
        apply: Callable[[list[int]], Awaitable[object]] | None = None,
        strategy: str = "",
    ) -> None:
        """`apply`: brings trees about; by default the manager's `update`. `strategy`: the only one that
        advice may have; empty: any.
        """
        self._strategy = strategy
        self._name = name
        self._manager = manager
        self._apply = apply or manager.update
        self._ready = False  # the topics exist
        self._adviser = adviser
        self._own = own
        self._store = store
        self._clock = clock
        self._told = -1  # the version of rules that the topic has
        self._unsent: list[pb.AppliedAdvice] = []

    @property
    def watches_only(self) -> bool:
        """Whether valid advice exists, so that `adapt` must not change trees."""
        return self._adviser.holds(self._now())

    def _now(self) -> int:
        return int(self._clock() * _MICRO)

    async def begin(self) -> None:
        """Makes the topics, and describes the network. Raises `own_topics.NotReached`."""
        if not self._ready:
            names = (topics.TOPOLOGY, topics.ADVICE, topics.APPLIED)
            await asyncio.to_thread(self._own.ensure, names)
            self._ready = True
        await self._describe()

    def resume(self) -> None:
        """Ends the kill switch."""
        self._adviser.resume()
        self._store.save(self._adviser.kept)

    async def look(self) -> list[Verdict]:
        """Reads new advice, and decides about it; returns the verdicts. Raises `own_topics.NotReached`, and
        the faults of switches and publishers once they are written down.
        """
        await self.begin()
        await self._send()
        found = await asyncio.to_thread(self._own.after, topics.ADVICE, self._adviser.kept.next)
        own = [one for one in found if one.key == self._name.encode()]
        verdicts = [await self._decide(one, last=one is own[-1]) for one in own]
        await self._send()
        await self._describe()
        return verdicts

    async def _decide(self, record: Found, *, last: bool) -> Verdict:
        verdict = self._adviser.weigh(record.offset, record.value, self._situation(), last=last)
        if verdict.trees is not None:
            self._adviser.spent(self._now(), verdict.rule_writes)
        self._store.save(self._adviser.kept)  # before a switch is written: an epoch is applied at most once
        began = self._clock()
        try:
            if verdict.trees is not None:
                await self._apply(list(verdict.trees))
        except asyncio.CancelledError:
            reason = f"{verdict.reason}; links have changed meanwhile, and the manager goes on with it"
            self._note(verdict, verdict.decision, reason, self._clock() - began)
            raise
        except Exception as error:
            self._note(verdict, Decision.FAILED, str(error), self._clock() - began)
            raise
        self._note(verdict, verdict.decision, verdict.reason, self._clock() - began)
        return verdict

    def _situation(self) -> Situation:
        rules = self._manager.base
        version = description(self._name, self._manager.version, rules, 0).version
        return Situation(self._name, version, self._manager.version, rules, self._now(), self._strategy)

    def _note(self, verdict: Verdict, decision: Decision, reason: str, seconds: float) -> None:
        _log.info("advice is decided", epoch=verdict.epoch, decision=decision.value, reason=reason)
        trees = self._manager.rules.trees if verdict.trees is not None else {}
        self._unsent.append(
            pb.AppliedAdvice(
                v=topics.VERSION,
                network=self._name,
                epoch=verdict.epoch,
                decision=decision.value,
                reason=reason,
                rule_version=self._manager.version,
                rule_writes=verdict.rule_writes,
                seconds=seconds,
                labels_before=verdict.labels_before,
                labels_after=verdict.labels_after,
                ts=self._now(),
                trees=_trees(trees.items()),
            )
        )

    async def _send(self) -> None:
        while self._unsent:
            value = topics.encode(self._unsent[0])
            await asyncio.to_thread(self._own.put, topics.APPLIED, self._name, value)
            self._unsent.pop(0)

    async def _describe(self) -> None:
        version = self._manager.version
        if version != self._told:
            message = description(self._name, version, self._manager.rules, self._now(), self._strategy)
            await asyncio.to_thread(self._own.put, topics.TOPOLOGY, self._name, topics.encode(message))
            self._told = version


def description(
    name: str, rule_version: int, rules: RuleBase, now: int, strategy: str = ""
) -> pb.NetworkTopology:
    """Returns the description of a network with its trees. `strategy`: the only one that advice may have."""
    network = rules.network
    ends = [node for pair in network.ends for node in pair]
    return pb.NetworkTopology(
        v=topics.VERSION,
        network=name,
        version=topics.topology_version(network.names, network.hosts, ends, rules.limit),
        names=network.names,
        hosts=network.hosts,
        ends=ends,
        rule_limit=rules.limit,
        rule_version=rule_version,
        trees=_trees(rules.trees.items()),
        ts=now,
        strategy=strategy,
    )


def _trees(trees: Iterable[tuple[int, int]]) -> list[pb.AdvisedTree]:
    return [pb.AdvisedTree(id=number, edges=members(edges)) for number, edges in sorted(trees)]
