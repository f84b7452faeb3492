"""Whether advice is applied. Pure.

    adviser = Adviser(limits, kept)
    verdict = adviser.weigh(offset, value, situation)
    if verdict.accepted is not None: adviser.spent(now, verdict.rule_writes)
    store.save(adviser.kept)                               # before a switch is written
    if verdict.accepted is not None: ...                   # the only case in which switches are written

Advice is a proposal of a program elsewhere: it may be late, repeated, for another network, wrong or forged.
Whatever it is, the present trees stay unless every rule of `_RULES` lets it pass, and the verdict says in
words which one did not. An epoch is decided once, also over restarts: `kept` has its number before the first
switch is written. A record without a value is the kill switch: nothing is applied until an operator resumes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.virtual.candidates import PRESENT
from treecast.middleware.routing.virtual.choice import WORTH

_MINUTE: Final = 60_000_000  # microseconds


class Decision(enum.Enum):
    """The fate of an epoch, as `_treecast.advice.applied` names it."""

    APPLIED = "applied"
    KEPT = "kept"  # the present trees are as good
    DRY_RUN = "dry-run"
    REFUSED = "refused"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    OFF = "off"  # the kill switch


class Limits(Struct, frozen=True):
    """The operator's limits. `rule_writes`: per minute, on all switches; `missing`: the share of hosts that
    the advice may know nothing of.
    """

    worth: float = WORTH
    rule_writes: int = 1000
    missing: float = 0.5
    dry_run: bool = False


class Installed(Protocol):
    """The trees that a manager has when advice comes. `kind`: of its network, as descriptions name it;
    `saves`: what advice saves, in words.
    """

    @property
    def kind(self) -> str: ...

    @property
    def saves(self) -> str: ...

    def fault(self, advice: pb.TreeAdvice) -> str:
        """Returns why its trees cannot be installed; empty if they can."""
        ...

    def writes(self, advice: pb.TreeAdvice) -> int:
        """Returns the writes to switches on the way to its trees, which have no fault."""
        ...


class Situation(Struct, frozen=True):
    """The manager when advice comes. `now` in microseconds. `strategy`: the operator's; empty: any."""

    network: str
    topology_version: str
    rule_version: int
    installed: Installed
    now: int
    strategy: str = ""


class KeptAdvice(Struct, frozen=True):
    """The part that outlives the manager. `next`: the offset that is read next; `off`: that of the kill
    switch, -1 if it is off; `valid_until`: how long the last accepted advice holds, and whose it was;
    `spent`: (time, rule writes) of the last minute, so that a restart does not renew the budget.
    """

    next: int = 0
    epoch: int = 0
    off: int = -1
    pipeline: str = ""
    valid_until: int = 0
    spent: tuple[tuple[int, int], ...] = ()


class Verdict(Struct, frozen=True):
    """A decision with its reason. `accepted`: the advice that is to be installed; None: nothing is."""

    decision: Decision
    reason: str
    epoch: int = 0
    accepted: pb.TreeAdvice | None = None
    rule_writes: int = 0
    labels_before: float = 0.0
    labels_after: float = 0.0


class Adviser:
    """The advice for one network."""

    def __init__(self, limits: Limits, kept: KeptAdvice) -> None:
        self.limits = limits
        self.kept = kept

    def holds(self, now: int) -> bool:
        """Returns whether valid advice exists: then the manager's own `adapt` only watches."""
        kept = self.kept
        return kept.off < 0 and now <= kept.valid_until and not self.limits.dry_run

    def resume(self) -> None:
        """Ends the kill switch, by an operator's word."""
        self.kept = replace(self.kept, off=-1)

    def spent(self, now: int, writes: int) -> None:
        """Notes writes to switches; store `kept` before these."""
        self.kept = replace(self.kept, spent=(*self._recent(now), (now, writes)))

    def writes_of_minute(self, now: int) -> int:
        return sum(writes for _, writes in self._recent(now))

    def _recent(self, now: int) -> tuple[tuple[int, int], ...]:
        # Times far ahead of `now` are of a clock that was set back: they would count for long.
        return tuple([one for one in self.kept.spent if abs(now - one[0]) < _MINUTE])

    def weigh(self, offset: int, value: bytes | None, at: Situation, *, last: bool = True) -> Verdict:
        """Decides about the record at `offset`. `last`: whether no later one is known."""
        self.kept = replace(self.kept, next=max(self.kept.next, offset + 1))
        if value is None:
            self.kept = replace(self.kept, off=offset, valid_until=0)
            return Verdict(
                Decision.OFF, f"the kill switch at offset {offset}: nothing is applied from here on"
            )
        try:
            advice = topics.decode(pb.TreeAdvice, value)
        except topics.Unreadable as error:
            return Verdict(Decision.REFUSED, str(error))
        if not last:
            return _verdict(advice, Decision.SUPERSEDED, "a later one has come already")
        for rule in _RULES:
            why = rule(self, advice, at)
            if why:
                return _verdict(advice, rule_decision(rule), why)
        return self._accepted(advice, at)

    def _accepted(self, advice: pb.TreeAdvice, at: Situation) -> Verdict:
        """Decides about sound advice by what it saves and costs."""
        writes, words = at.installed.writes(advice), at.installed.saves
        over = self.writes_of_minute(at.now) + writes - self.limits.rule_writes
        saved = 1 - advice.labels_expected / advice.labels_now if advice.labels_now else 0.0
        if saved >= self.limits.worth and over > 0:
            budget = self.limits.rule_writes
            why = f"{writes} rule writes would exceed the {budget} of a minute by {over}: `rule_writes`"
            return _verdict(advice, Decision.REFUSED, why, writes)
        self.kept = replace(
            self.kept, epoch=advice.epoch, pipeline=advice.pipeline, valid_until=advice.valid_until
        )
        if not writes or saved < self.limits.worth:
            worth = f"{100 * self.limits.worth:.0f} % are worth an update"
            why = f"it saves {100 * saved:.1f} % of {words}; {worth}"
            return _verdict(advice, Decision.KEPT, why if writes else "these trees are installed")
        if self.limits.dry_run:
            return _verdict(advice, Decision.DRY_RUN, f"it would save {100 * saved:.1f} % of {words}", writes)
        return _verdict(advice, Decision.APPLIED, f"it saves {100 * saved:.1f} % of {words}", writes, advice)


def _verdict(
    advice: pb.TreeAdvice,
    decision: Decision,
    reason: str,
    writes: int = 0,
    accepted: pb.TreeAdvice | None = None,
) -> Verdict:
    labels = (advice.labels_now, advice.labels_expected)
    return Verdict(decision, reason, advice.epoch, accepted, writes, *labels)


# --- the rules, in this order; each returns why advice is refused, or nothing

Rule = Callable[[Adviser, pb.TreeAdvice, Situation], str]


def _is_on(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    off = adviser.kept.off
    return f"the kill switch at offset {off} holds: SIGHUP to the manager resumes" if off >= 0 else ""


def _for_this_network(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    if advice.network == at.network:
        return ""
    return f"it is for network {advice.network!r}, and this is {at.network!r}"


def _of_this_kind(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    kinds = {"": "label switches"}
    asked, here = (kinds.get(one, one) for one in (advice.kind, at.installed.kind))
    return "" if asked == here else f"it is for a network of {asked}, and this is one of {here}"


def _is_new(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    last = adviser.kept.epoch
    return "" if advice.epoch > last else f"epoch {advice.epoch} is not above the last one, {last}"


def _is_valid_now(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    late = (at.now - advice.valid_until) / 1e6
    return f"it was valid until {late:.1f} s ago" if late > 0 else ""


def _from_one_pipeline(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    kept = adviser.kept
    if kept.pipeline in ("", advice.pipeline) or at.now > kept.valid_until:
        return ""
    seconds = (kept.valid_until - at.now) / 1e6
    return (
        f"it is from pipeline {advice.pipeline}, and advice of {kept.pipeline} is valid for {seconds:.0f} s"
        " more: stop one of them"
    )


def _same_topology(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    if advice.topology_version == at.topology_version:
        return ""
    return f"it is for topology {advice.topology_version[:8]}, and this is {at.topology_version[:8]}"


def _same_base(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    base = advice.base_rule_version
    return (
        ""
        if base == at.rule_version
        else f"it starts from version {base}, and publishers use {at.rule_version}"
    )


def _of_the_strategy(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    if at.strategy in ("", advice.strategy) or advice.strategy == PRESENT:
        return ""
    return f"its trees are those of {advice.strategy!r}, and the operator's strategy is {at.strategy!r}"


def _knows_enough(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    missing, expected = len(advice.hosts_missing), max(1, advice.hosts_expected)
    if missing / expected <= adviser.limits.missing:
        return ""
    named = ", ".join(advice.hosts_missing[:5])
    return f"{missing} of {expected} hosts were missing ({named}): more than `missing` allows"


def _has_sound_numbers(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    numbers = (advice.labels_now, advice.labels_expected)
    sound = all(math.isfinite(number) and number >= 0 for number in numbers)
    return "" if sound else f"it says {numbers[0]} and {numbers[1]} of {at.installed.saves} per packet"


def _has_sound_trees(adviser: Adviser, advice: pb.TreeAdvice, at: Situation) -> str:
    return at.installed.fault(advice)


_RULES: Final[tuple[Rule, ...]] = (
    _is_on,
    _for_this_network,
    _of_this_kind,
    _from_one_pipeline,  # before the number: two pipelines on the same records give the same one
    _is_new,
    _is_valid_now,
    _same_topology,
    _same_base,
    _of_the_strategy,
    _knows_enough,
    _has_sound_numbers,
    _has_sound_trees,
)


def rule_decision(rule: Rule) -> Decision:
    """Returns how advice that a rule stops is called."""
    return Decision.EXPIRED if rule is _is_valid_now else Decision.REFUSED
