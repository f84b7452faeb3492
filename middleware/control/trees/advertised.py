"""Publishers that say what they will send, hosts that say what they want, and what follows for trees (the
thesis, 5.3.4 and 7.2). Pure.

    found = related(schema, {"alpha": "price > 50"}, {"beta": ["price > 10"], "gamma": ["price < 10"]})
    found["alpha"]                       # {"beta": PERMANENT, "gamma": NONE}
    knowledge(network, found, rng)       # for strategies that need to know who publishes to whom

| match | tree of the publisher | the host |
| --- | --- | --- |
| permanent | leads to it | needs no filter for what the publisher sends |
| potential | leads to it, of strategies that take rare receivers too (tree, relation) | filters |
| none | does not lead to it | gets nothing |

A publisher whose advertisement matches no subscription has no tree. This is for laying trees alone: who gets
a message is decided message by message, so a publisher that breaks its word, or a host that wants more than
it has said, costs longer stacks and loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from treecast.middleware.filters.compiler.diagram import DiagramTooLarge
from treecast.middleware.filters.compiler.relations import Match, match
from treecast.middleware.filters.compiler.schema import Schema, SchemaError
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.tree import Filter
from treecast.middleware.routing.clusters import dense_regions, k_medoids
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.rng import Rng
from treecast.middleware.routing.virtual.candidates import DENSE, REGIONS
from treecast.middleware.routing.virtual.strategies import Knowledge
from treecast.middleware.routing.virtual.strategies.clients import ALWAYS

Relations = dict[str, dict[str, Match]]  # by publisher and subscriber

LONGEST: Final = 4096  # characters of a filter, as in a subscription
MOST: Final = 64  # subscriptions of a host
_SELDOM: Final = 0.0  # the share of a potential match: how many packets match is not known


def related(schema: Schema, advertised: Mapping[str, str], wanted: Mapping[str, Sequence[str]]) -> Relations:
    """Returns how each publisher's advertisement stands to what each other host wants, all its subscriptions
    together. Raises RoutingError, with the host, for a filter that cannot be read.

    Filters that are too large to be compared match potentially, which is always safe.
    """
    sends = {host: _read(host, "advertises", text) for host, text in sorted(advertised.items())}
    joined = {host: _any_of(host, texts) for host, texts in sorted(wanted.items()) if texts}
    wants = {host: _read(host, "subscribes", text) for host, text in joined.items()}
    found: Relations = {}
    for publisher, tree in sends.items():
        others = [host for host in wants if host != publisher]
        found[publisher] = {host: _match(schema, publisher, tree, host, wants[host]) for host in others}
    return found


def _any_of(host: str, texts: Sequence[str]) -> str:
    if len(texts) > MOST:
        raise RoutingError(f"host {host!r}: {len(texts)} subscriptions, above {MOST}")
    return texts[0] if len(texts) == 1 else " or ".join(f"({text})" for text in texts)


def _read(host: str, key: str, text: str) -> Filter:
    if len(text) > LONGEST * (MOST if key == "subscribes" else 1):
        raise RoutingError(f"host {host!r}, {key}: a filter of {len(text)} characters, above {LONGEST}")
    try:
        return parse(text)
    except FilterError as error:
        raise RoutingError(f"host {host!r}, {key}: {error}") from error


def _match(schema: Schema, publisher: str, sends: Filter, host: str, wants: Filter) -> Match:
    try:
        return match(schema, sends, wants)
    except DiagramTooLarge:
        return Match.POTENTIAL
    except (FilterError, SchemaError) as error:
        raise RoutingError(f"what {publisher!r} advertises and {host!r} subscribes: {error}") from error


def knowledge(network: Network, found: Relations, rng: Rng) -> Knowledge:
    """Returns who publishes to whom. A potential match has the share 0: it may be rare."""
    shares = {Match.PERMANENT: ALWAYS, Match.POTENTIAL: _SELDOM}
    subscribers = {}
    for publisher, its in found.items():
        known = {network.node(host): shares[one] for host, one in its.items() if one in shares}
        if known:
            subscribers[network.node(publisher)] = known
    groups = k_medoids(network, min(REGIONS, len(network.switches)), rng)
    return Knowledge(subscribers, dense_regions(network, groups, DENSE))


def told(found: Relations) -> list[str]:
    """Returns a line for each publisher: which hosts match how."""
    lines = []
    for publisher, its in found.items():
        parts = []
        for kind in Match:
            hosts = [host for host, one in its.items() if one is kind]
            parts += [f"{kind.value}={','.join(hosts)}"] if hosts else []
        reached = any(one is not Match.NONE for one in its.values())
        lines.append(f"advertised {publisher} {' '.join(parts)}" + ("" if reached else " (no tree)"))
    return lines
