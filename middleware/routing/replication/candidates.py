"""Which links the trees of receiver sets avoid, so that the busiest link carries less: one trial per strategy
and threshold, as `virtual.candidates` has them for labels.

    for trial in trials(thresholds):
        judged.append(judge(ways, groups, present, sent, held_out, trial))
    best(judged)                    # of virtual.candidates

A trial decides by what one part of the packets tells, and is judged by another part: by the share of these
packets that the busiest link between routers carries, 1 if all of them cross it. Hosts' own links count for
nothing, since no tree can leave them. `Judged.trees` has the links to avoid (bits) by group, in the order of
`groups`. Trials depend on their arguments alone, and on no chance.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from ..bits import mask_of
from ..network import RoutingError, Unreachable
from ..virtual.candidates import PRESENT, Judged, Trial, Weights
from .engineering import Engineer
from .forest import Forest
from .shapes import Planned
from .ways import Ways

Group = tuple[int, tuple[int, ...]]  # the root, and the receivers in ascending order
Avoid = Mapping[Group, int]  # links (bits); groups that are not named avoid none

SHORTEST: Final = "shortest"  # no tree avoids anything
SPREAD: Final = "spread"  # trees leave links with more than a share of the busiest one's packets


def trials(thresholds: Iterable[float]) -> list[Trial]:
    """Returns the trials; thresholds are shares between 0 and 1."""
    spread = {Trial(SPREAD, threshold, 0) for threshold in thresholds if 0 < threshold < 1}
    return sorted({Trial(PRESENT, 0.0, 0), Trial(SHORTEST, 0.0, 0), *spread})


def planned(ways: Ways, group: Group, avoid: int) -> tuple[Planned, int]:
    """Returns the tree of a group, and the links that it avoids: none if its receivers are reached only over
    some of these. Raises RoutingError if they are not reached at all.
    """
    root, receivers = group
    leaves = mask_of(receivers) & ~(1 << root)
    try:
        return ways.plan(root, leaves, avoid), avoid
    except Unreachable:
        return ways.plan(root, leaves, 0), 0


def loads(ways: Ways, weights: Weights, avoid: Avoid) -> dict[int, float]:
    """Returns packets by link between routers. Groups that are not reached load none."""
    found: dict[int, float] = {}
    for group, weight in sorted(weights.items()):
        try:
            tree, _ = planned(ways, group, avoid.get(group, 0))
        except RoutingError:
            continue
        for link, count in tree.copies.items():
            if not _of_host(ways, link):
                found[link] = found.get(link, 0.0) + weight * count
    return found


def busiest(ways: Ways, weights: Weights, avoid: Avoid) -> float:
    """Returns the share of packets that the busiest link carries; 0 if there are none."""
    sent = sum(weights.values())
    return max(loads(ways, weights, avoid).values(), default=0.0) / sent if sent else 0.0


def _of_host(ways: Ways, link: int) -> bool:
    network = ways.network
    return network.is_host[network.tails[link]] or network.is_host[network.heads[link]]


def writes(ways: Ways, groups: Iterable[Group], before: Avoid, after: Avoid) -> tuple[int, int]:
    """Returns the segments that routers hold in the end, and those written and removed on the way, make
    before break. Groups that are not reached have none.
    """
    forest, count = Forest(ways.network, ways.plan), 0
    old, new = _named(ways, groups, before), _named(ways, groups, after)
    for name in sorted(old):
        _open(forest, name, old[name])
    for name in sorted(new.keys() - old.keys()):
        count += _open(forest, name, new[name])
    for name in sorted(old.keys() - new.keys()):
        count += len(forest.close(name).removed)
    return len(forest.segments), count


def _named(ways: Ways, groups: Iterable[Group], avoid: Avoid) -> dict[tuple[Group, int], int]:
    """Returns what each tree avoids, by its group and links."""
    found = {}
    for group in groups:
        try:
            tree, links = planned(ways, group, avoid.get(group, 0))
        except RoutingError:
            continue
        found[group, tree.links] = links
    return found


def _open(forest: Forest, name: tuple[Group, int], avoid: int) -> int:
    (root, receivers), _ = name
    return len(forest.open(name, root, mask_of(receivers), avoid).created)


def spread(ways: Ways, sent: Weights, threshold: float) -> dict[Group, int]:
    """Returns the links to avoid so that trees leave links with more than a share of what the busiest one
    carries by shortest paths, as far as other links stay below it.
    """
    network, forest = ways.network, Forest(ways.network, ways.plan)
    for group in sorted(sent):
        root, receivers = group
        try:
            forest.open(group, root, mask_of(receivers))
        except RoutingError:
            continue
    most = max(loads(ways, sent, {}).values(), default=0.0)
    if not most:
        return {}
    links = range(2 * network.edge_count)
    capacity = [inf if _of_host(ways, link) else most for link in links]
    known: dict[Hashable, float] = {group: sent[group] for group in sorted(sent) if group in forest.groups}
    Engineer(forest, capacity, high=threshold, low=threshold).balance([0.0] * len(capacity), known)
    found = {group: forest.groups[group].avoid for group in sent if group in forest.groups}
    return {group: links for group, links in found.items() if links}


def judge(
    ways: Ways, groups: Sequence[Group], present: Avoid, sent: Weights, held_out: Weights, trial: Trial
) -> Judged:
    """Decides by `sent`, and measures by `held_out`. `groups`: of both, in ascending order."""
    try:
        avoid = _decided(ways, present, sent, trial)
        share = busiest(ways, held_out, avoid)
        rules, count = writes(ways, groups, present, avoid)
    except RoutingError as error:
        return Judged(trial, 0.0, 0, 0, (), str(error))
    return Judged(trial, share, rules, count, tuple([avoid.get(group, 0) for group in groups]))


def _decided(ways: Ways, present: Avoid, sent: Weights, trial: Trial) -> Avoid:
    if trial.strategy == PRESENT:
        return present
    if trial.strategy == SHORTEST:
        return {}
    if trial.strategy == SPREAD:
        return spread(ways, sent, trial.threshold)
    raise RoutingError(f"{trial.strategy!r} is no strategy for replication segments")
