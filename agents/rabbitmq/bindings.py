"""The interest of a site, derived from its bindings, and the bindings of the agent's queue. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from treecast.middleware.model.wishes import Pattern

from .management import BindingFound
from .topics import binding_of, pattern_of

T = TypeVar("T")


def wanted_here(
    vhost: str, kinds: Mapping[str, str], bindings: Mapping[str, Iterable[BindingFound]], own_queue: str
) -> set[Pattern]:
    """Returns the patterns of all bindings but those of the agent's own queue. `kinds`: the carried exchanges
    with their types; `bindings`: by exchange."""
    return {
        pattern_of(vhost, exchange.encode(), kinds[exchange], one.routing_key.encode())
        for exchange, found in bindings.items()
        if exchange in kinds
        for one in found
        if not (one.destination_type == "queue" and one.destination == own_queue)
    }


def own_bindings(found: Iterable[BindingFound]) -> set[tuple[str, str]]:
    """Returns exchange and key of the bindings of the agent's own queue, but for the default exchange's."""
    return {(one.source, one.routing_key) for one in found if one.source}


def wanted_elsewhere(
    vhost: str, kinds: Mapping[str, str], patterns: Iterable[Pattern]
) -> set[tuple[str, str]]:
    """Returns exchange and key of the bindings that the agent's queue needs, so that it gets what other sites
    want."""
    by_name = {name.encode(): kind for name, kind in kinds.items()}
    found = set()
    for pattern in patterns:
        binding = binding_of(vhost, pattern, by_name)
        if binding is not None:
            found.add((binding[0].decode(), binding[1].decode("utf-8", "surrogateescape")))
    return found


def difference(before: set[T], after: set[T]) -> tuple[set[T], set[T]]:
    """Returns what was added and what was removed."""
    return after - before, before - after


def kept(before: set[T], found: set[T], missed: set[T]) -> tuple[set[T], set[T]]:
    """Returns what counts after a look that has `found` something, and what of it the look has missed.

    `before`: what counted. `missed`: what the look before has missed; if this one misses it too, it is gone.
    """
    missing = before - found - missed
    return found | missing, missing
