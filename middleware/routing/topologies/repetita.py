"""REPETITA's text format, used to distribute the Internet Topology Zoo.

  NODES n
  label x y                               n lines; x and y are degrees of longitude and latitude
  EDGES m
  label src dest weight bw delay          m lines, one per direction; kbit/s and microseconds

Source: Gay, Schaus, Vissicchio: REPETITA, arXiv 1710.08665. Directions and parallel edges are merged.
"""

from __future__ import annotations

from ..network import Network, RoutingError, build

_NODE_FIELDS = 3
_EDGE_FIELDS = 6
_MOST_LINES = 1_000_000


def parse_repetita(text: str) -> Network:
    """Returns the network. Raises RoutingError, which names the wrong line."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    names, positions, rest = _nodes(lines)
    edges, weights = _edges(rest, len(names))
    network = build(names, edges, weights=weights)
    network.positions = positions
    return network


Lines = list[tuple[int, list[str]]]


def _count(lines: Lines, at: int, word: str) -> int:
    if at >= len(lines):
        raise RoutingError(f"the file ends before its {word} block")
    number, fields = lines[at]
    if len(fields) != 2 or fields[0] != word or not fields[1].isdigit() or int(fields[1]) > _MOST_LINES:
        raise RoutingError(f"line {number}: expected `{word} <count>`")
    return int(fields[1])


def _block(lines: Lines, at: int, word: str, fields: int) -> tuple[Lines, int]:
    """Returns the lines of a block without its two header lines, and the position of the next block."""
    count = _count(lines, at, word)
    found = lines[at + 2 : at + 2 + count]
    if len(found) != count:
        raise RoutingError(f"the {word} block has fewer than {count} lines")
    for number, line in found:
        if len(line) != fields:
            raise RoutingError(f"line {number}: expected {fields} fields, found {len(line)}")
    return found, at + 2 + count


def _nodes(lines: Lines) -> tuple[list[str], list[tuple[float, float]], Lines]:
    block, end = _block(lines, 0, "NODES", _NODE_FIELDS)
    try:
        return [f[0] for _, f in block], [(float(f[1]), float(f[2])) for _, f in block], lines[end:]
    except ValueError:
        place = next(" ".join(f[1:3]) for _, f in block if not all(map(_is_number, f[1:3])))
        raise RoutingError(f"a node's coordinates are not two numbers: {place}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _edges(lines: Lines, nodes: int) -> tuple[list[tuple[int, int]], list[int]]:
    block, end = _block(lines, 0, "EDGES", _EDGE_FIELDS)
    if end != len(lines):
        raise RoutingError(f"line {lines[end][0]}: nothing is expected after the edges")
    edges, weights = [], []
    for number, fields in block:
        if not all(field.isdigit() for field in fields[1:4]) or max(int(f) for f in fields[1:3]) >= nodes:
            raise RoutingError(f"line {number}: source, destination and weight are not numbers in range")
        edges.append((int(fields[1]), int(fields[2])))
        weights.append(int(fields[3]))
    return edges, weights
