"""A manager that follows advice: describes its network in a topic, reads advice, and writes down what became
of it.

    advised = Advised(name, managed, adviser, OwnTopics(address), store)
    await advised.look()        # regularly

A daemon that cannot be reached, or a pipeline that is dead, changes nothing: the present trees stay.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import Found, NotReached
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.model.logs import Log

from .rules import Adviser, Decision, Installed, KeptAdvice, Situation, Verdict

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


class Managed(Protocol):
    """A network with its manager. Names of networks are those in advice."""

    @property
    def version(self) -> int:
        """The version of the trees that advice starts from: higher after each change, also over restarts."""
        ...

    def installed(self) -> Installed: ...

    def describe(self, network: str, now: int, strategy: str) -> pb.NetworkTopology:
        """Returns the network with its present trees. `strategy`: the only one that advice may have."""
        ...

    def note(self, message: pb.AppliedAdvice) -> None:
        """Adds the present trees to what is written down of applied advice."""
        ...

    async def apply(self, advice: pb.TreeAdvice) -> None:
        """Brings the trees of advice about, which has no fault. Raises what went wrong at switches and
        publishers.
        """
        ...


class Advised:
    """The advice for one manager's network, called `name`."""

    def __init__(
        self,
        name: str,
        managed: Managed,
        adviser: Adviser,
        own: Topics,
        store: AdviceStore,
        clock: Callable[[], float] = time.time,
        *,
        strategy: str = "",
    ) -> None:
        """`strategy`: the only one that advice may have; empty: any."""
        self._strategy = strategy
        self._name = name
        self._managed = managed
        self._ready = False  # the topics exist
        self._adviser = adviser
        self._own = own
        self._store = store
        self._clock = clock
        self._told = -1  # the version of trees that the topic has
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
        if verdict.accepted is not None:
            self._adviser.spent(self._now(), verdict.rule_writes)
        self._store.save(self._adviser.kept)  # before a switch is written: an epoch is applied at most once
        began = self._clock()
        try:
            if verdict.accepted is not None:
                await self._managed.apply(verdict.accepted)
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
        managed, now = self._managed, self._now()
        version = managed.describe(self._name, now, self._strategy).version
        return Situation(self._name, version, managed.version, managed.installed(), now, self._strategy)

    def _note(self, verdict: Verdict, decision: Decision, reason: str, seconds: float) -> None:
        _log.info("advice is decided", epoch=verdict.epoch, decision=decision.value, reason=reason)
        message = pb.AppliedAdvice(
            v=topics.VERSION,
            network=self._name,
            epoch=verdict.epoch,
            decision=decision.value,
            reason=reason,
            rule_version=self._managed.version,
            rule_writes=verdict.rule_writes,
            seconds=seconds,
            labels_before=verdict.labels_before,
            labels_after=verdict.labels_after,
            ts=self._now(),
        )
        if verdict.accepted is not None:
            self._managed.note(message)
        self._unsent.append(message)

    async def _send(self) -> None:
        while self._unsent:
            value = topics.encode(self._unsent[0])
            await asyncio.to_thread(self._own.put, topics.APPLIED, self._name, value)
            self._unsent.pop(0)

    async def _describe(self) -> None:
        version = self._managed.version
        if version != self._told:
            message = self._managed.describe(self._name, self._now(), self._strategy)
            await asyncio.to_thread(self._own.put, topics.TOPOLOGY, self._name, topics.encode(message))
            self._told = version


class Printed:
    """Prints what became of advice. A daemon that is away is said once, and hinders nothing else."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._said = ""

    async def look(self, advised: Advised) -> None:
        """Decides about new advice, as `Advised.look`, whose faults of switches and publishers it raises."""
        try:
            for verdict in await advised.look():
                print(f"advice epoch={verdict.epoch} {verdict.decision.value}: {verdict.reason}", flush=True)
            self._said = ""
        except NotReached as error:
            if str(error) != self._said:
                print(f"{self._program}: advice waits: {error}", file=sys.stderr, flush=True)
            self._said = str(error)
