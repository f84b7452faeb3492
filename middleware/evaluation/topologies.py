"""Networks by name: files of a user's folder, else topohub; and the thesis' Table 6.1."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ..routing.network import Network, RoutingError
from ..routing.rooted import diameter
from ..routing.topologies import from_topohub, parse_graphml, parse_repetita

ALL = "all"  # stands for every available network of Table 6.1

# Name in the files: nodes and edges in Table 6.1. Uninett is absent there and in the files' collection.
TABLE_6_1: dict[str, tuple[int, int]] = {
    "Chinanet": (42, 66),
    "Litnet": (43, 43),
    "Cernet": (41, 58),
    "Ntt": (32, 65),
    "Cesnet200706": (44, 51),
    "Carnet": (44, 43),
    "Dfn": (50, 78),
    "Telcove": (71, 70),
    "Forthnet": (62, 62),
    "Bellsouth": (51, 66),
    "Garr200902": (54, 68),
    "Arnes": (41, 57),
    "BeyondTheNetwork": (53, 65),
    "Uunet": (49, 84),
    "Tw": (71, 115),
    "Renater2010": (43, 56),
    "Surfnet": (50, 68),
    "Iris": (51, 64),
    "Palmetto": (45, 64),
    "BtLatinAmerica": (45, 50),
    "Bellcanada": (48, 64),
    "Sanet": (43, 45),
    "LambdaNet": (42, 46),
    "HiberniaGlobal": (55, 81),
    "Ntelos": (47, 58),
    "RedBestel": (84, 93),
    "VtlWavenet2008": (88, 92),
}


@lru_cache(maxsize=64)
def load(name: str, folder: Path | None = None) -> Network:
    """Returns a network from `NAME.graph` or `NAME.graphml` of a folder, else from topohub.

    Raises RoutingError if it is missing or invalid.
    """
    if folder is None:
        return from_topohub(name)
    for suffix, parse in ((".graph", parse_repetita), (".graphml", parse_graphml)):
        path = folder / f"{name}{suffix}"
        if path.is_file():
            try:
                return parse(path.read_text(encoding="utf-8"))
            except (RoutingError, UnicodeDecodeError) as error:
                raise RoutingError(f"{path}: {error}") from error
    raise RoutingError(f"{folder} has no {name}.graph and no {name}.graphml")


def available(names: list[str], folder: Path | None = None) -> list[str]:
    """Returns those of the names that can be loaded."""
    found = []
    for name in names:
        try:
            load(name, folder)
        except RoutingError:
            continue
        found.append(name)
    return found


def named(names: tuple[str, ...], folder: Path | None = None) -> tuple[str, ...]:
    """Returns the networks that names denote, each once. Raises RoutingError if `ALL` finds none."""
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(available(list(TABLE_6_1), folder) if name == ALL else (name,))
    if names and not found:
        raise RoutingError(f"{folder or 'topohub'} has none of the networks of the thesis' Table 6.1")
    return tuple(found)


def degree_variance(network: Network) -> float:
    """Returns the variance of the switches' and hosts' numbers of links."""
    degrees = [len(links) for links in network.out]
    middle = sum(degrees) / len(degrees)
    return sum((degree - middle) ** 2 for degree in degrees) / len(degrees)


def scale_free(networks: dict[str, Network]) -> dict[str, bool]:
    """Returns which have degrees farther apart, for their diameter, than the network in the middle.

    The thesis parts networks by eye into scale-free ones (small diameter, degrees far apart) and others.
    """
    ratios = {name: degree_variance(one) / diameter(one) for name, one in networks.items()}
    middle = sorted(ratios.values())[len(ratios) // 2]
    return {name: ratio > middle for name, ratio in ratios.items()}


def counts_note(name: str, network: Network) -> str:
    """Returns a note on a network whose size differs from Table 6.1."""
    here = (network.node_count, network.edge_count)
    there = TABLE_6_1.get(name, here)
    if here == there:
        return ""
    return f"{name} has {here[0]} nodes and {here[1]} edges here, {there[0]} and {there[1]} in Table 6.1"
