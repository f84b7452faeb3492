"""Sentences for operators about groups that no longer reach a host: cause, effect, next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct


class Trouble(Struct, frozen=True):
    """A group that does not reach hosts which it has reached before. If it reaches nobody, `lost` are all.

    `group`: its address as text; empty if packets name their receivers. `topic`: the topic, or the set of
    hosts, that it is for. `reached`: the number of hosts that it reaches. `why` and `advice` are clauses.
    """

    carrier: str
    group: str
    topic: str
    lost: tuple[int, ...]
    reached: int
    why: str
    advice: str


def why_lost(why: str, seconds: float, advice: str) -> str:
    """Returns why a single host gets unicast."""
    return f"{why} ({_for(seconds)}): {advice}"


def sentences(troubles: Iterable[Trouble], name: Callable[[int], str]) -> list[str]:
    """Returns one sentence for all groups of a carrier that miss the same hosts for the same reason. `name`
    returns a host's name."""
    alike: dict[tuple[object, ...], list[Trouble]] = {}
    for one in troubles:
        alike.setdefault((one.carrier, one.lost, one.reached > 0, one.why), []).append(one)
    return [_sentence(found, name) for found in alike.values()]


def _sentence(found: list[Trouble], name: Callable[[int], str]) -> str:
    first, several = found[0], len(found) > 1
    hosts = ", ".join(sorted([name(host) for host in first.lost]))
    what = f"group {first.group}" if first.group else first.carrier
    what += f" ({first.topic})" + (f" and {len(found) - 1} more" if several else "")
    if first.reached:
        others = f"{first.reached} other host{'s' if first.reached > 1 else ''}"
        text = f"{what} {'do' if several else 'does'} not reach {hosts}, but {others}"
    else:
        text = f"{what} {'reach' if several else 'reaches'} no host of {hosts}"
    return f"{text}: {first.why}; {first.advice} Unicast goes there until it is reached again."


def _for(seconds: float) -> str:
    return f"for {seconds:.0f} s" if seconds < 120 else f"for {seconds / 60:.0f} min"
