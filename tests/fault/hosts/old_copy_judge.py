"""Judges what is missing after old copies were restored: what was lost, and what is named. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from .disk_load import Ack, Place

# a message may have been acknowledged before the copy was made, and have reached its receiver after it
_ON_ITS_WAY_S = 5.0


@dataclass(frozen=True)
class Restored:
    """A host's directory became that of `copied` at the moment `back` (s, a steady clock). `kept`: the end of
    each partition that the host leads, as its copy or another host had it just before."""

    host: str
    copied: float
    back: float
    kept: Mapping[Place, int]


@dataclass(frozen=True)
class Path:
    """The way of messages of a face: from their publisher's host to the host that keeps them."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Sent:
    """A message that was acknowledged to its publisher at `at`."""

    number: int
    at: float


@dataclass
class Judged:
    """`lost`: acknowledged, missing, and named."""

    found: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)


def judge_records(
    acks: Iterable[Ack],
    restored: Sequence[Restored],
    named: Mapping[Place, Sequence[int]],
    records: Mapping[Place, Mapping[int, tuple[int, int]]],
) -> Judged:
    """A record that the copy or another host had must be at its offset. Another must lie in a named loss.

    `named`: the first offsets of the losses named for a partition. `records`: (producer, sequence) by offset.
    """
    judged = Judged()
    for ack in acks:
        ends = [one.kept[ack.place] for one in restored if ack.at < one.back and ack.place in one.kept]
        gone = [end for end in ends if end <= ack.offset]
        firsts = named.get(ack.place, ())
        if records.get(ack.place, {}).get(ack.offset) == (ack.producer, ack.sequence):
            judged.found += 1
        elif not gone:
            judged.problems.append(f"{ack} is missing, though a copy had it each time ({ends})")
        elif any(end <= first <= ack.offset for end in gone for first in firsts):
            judged.lost += 1
        else:
            judged.problems.append(
                f"{ack} is missing, and the losses named from {list(firsts)} on are others"
            )
    return judged


def judge_messages(
    path: Path,
    acked: Iterable[Sent],
    received: AbstractSet[int],
    restored: Sequence[Restored],
    named: AbstractSet[str],
) -> Judged:
    """A message must have arrived, unless it was on its way, or kept, while a host's copy grew old.

    `named`: the hosts whose restored directories are named as losses of unknown size.
    """
    judged = Judged()
    for sent in acked:
        if sent.number in received:
            judged.found += 1
            continue
        hosts = {
            one.host
            for one in restored
            if one.host in path.hosts and one.copied - _ON_ITS_WAY_S <= sent.at < one.back
        }
        if hosts & named:
            judged.lost += 1
        elif hosts:
            judged.problems.append(f"{path.name}: {sent} is missing, and nothing names {sorted(hosts)}")
        else:
            judged.problems.append(f"{path.name}: {sent} is missing, and no copy of then was restored")
    return judged
