"""GraphML, as the Internet Topology Zoo publishes it: `<node id>` and `<edge source target>`.

A node's name is its `label` datum if unique, else its id. Longitude and Latitude become its coordinates if
every node has them.
"""

from __future__ import annotations

from xml.etree import ElementTree

from ..network import Network, RoutingError, build


def parse_graphml(text: str) -> Network:
    """Returns the network of the first graph. Raises RoutingError for invalid text."""
    try:
        root = ElementTree.fromstring(text)  # nosec B314  # an operator's own file
    except ElementTree.ParseError as error:
        raise RoutingError(f"no GraphML: {error}") from error
    graph = next((element for element in root.iter() if _tag(element) == "graph"), None)
    if graph is None:
        raise RoutingError("no GraphML: there is no <graph>")
    keys = {key.get("id", ""): key.get("attr.name", "") for key in root if _tag(key) == "key"}
    nodes = [element for element in graph if _tag(element) == "node"]
    numbers = {node.get("id", ""): number for number, node in enumerate(nodes)}
    edges = []
    for edge in graph:
        if _tag(edge) == "edge":
            source, target = edge.get("source", ""), edge.get("target", "")
            if source not in numbers or target not in numbers:
                raise RoutingError(f"edge {source!r} -- {target!r} names an unknown node")
            edges.append((numbers[source], numbers[target]))
    data = [_data(node, keys) for node in nodes]
    network = build(_names(list(numbers), data), edges)
    network.positions = _positions(data)
    return network


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _data(node: ElementTree.Element, keys: dict[str, str]) -> dict[str, str]:
    found = {}
    for datum in node:
        if _tag(datum) == "data":
            found[keys.get(datum.get("key", ""), "")] = (datum.text or "").strip()
    return found


def _names(ids: list[str], data: list[dict[str, str]]) -> list[str]:
    labels = [datum.get("label", "") for datum in data]
    return [
        label if label and labels.count(label) == 1 and label not in ids else number
        for number, label in zip(ids, labels, strict=True)
    ]


def _positions(data: list[dict[str, str]]) -> list[tuple[float, float]]:
    try:
        return [(float(datum["Longitude"]), float(datum["Latitude"])) for datum in data]
    except (KeyError, ValueError):
        return []
