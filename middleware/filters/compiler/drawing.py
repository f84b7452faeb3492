"""Pictures of diagrams as SVG: the binary one as in Fig. 5 if it is small and has no state, else the one by
field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from msgspec import Struct

from .binary import Binary, Predicate, TooManyNodes
from .bounds import ABSENT, Bounds
from .compile import Compiled
from .terms import Effect

MAX_DRAWN: Final = 400  # nodes
_COLOURS: Final = ("#cfe3f7", "#fdf0b0", "#d5efd0", "#f6d5ea", "#e4dcf5", "#d2efef", "#f3e0cf")
_LEAF: Final = "#f7c9c4"
_WIDE, _HIGH, _GAP_X, _GAP_Y, _MARGIN = 132, 34, 26, 58, 24


class TooLargeToDraw(ValueError):
    """The diagram has more nodes than a picture can show."""

    def __init__(self, nodes: int) -> None:
        super().__init__(
            f"the diagram has {nodes:,} nodes, and a picture shows at most {MAX_DRAWN}; draw fewer rules"
        )


class Shape(Struct, frozen=True):
    """A node of a picture: its text, its row from the top, its colour."""

    text: str
    row: int
    colour: str


class Arrow(Struct, frozen=True):
    """An edge, with a text if it has one. Dashed: the test is false."""

    tail: int
    head: int
    text: str = ""
    dashed: bool = False


def svg_of(compiled: Compiled) -> str:
    """Returns the picture. Raises TooLargeToDraw."""
    if not compiled.terms.variables:
        try:
            return _binary(compiled, Binary(compiled.schema, compiled.terms, compiled.order))
        except (TooManyNodes, TooLargeToDraw):
            pass
    return _by_field(compiled)


# --- the binary diagram


def _binary(compiled: Compiled, binary: Binary) -> str:
    nodes = _below(binary.root, lambda n: (binary.nodes[n].high, binary.nodes[n].low) if n > 0 else ())
    if len(nodes) > MAX_DRAWN:
        raise TooLargeToDraw(len(nodes))
    predicates = sorted({binary.nodes[n].predicate for n in nodes if n > 0}, key=binary.predicates.index)
    rows = {predicate: row for row, predicate in enumerate(predicates)}
    shapes = {}
    arrows = []
    for node in nodes:
        if node > 0:
            test = binary.nodes[node]
            colour = _COLOURS[test.predicate.level % len(_COLOURS)]
            shapes[node] = Shape(_predicate(compiled, test.predicate), rows[test.predicate], colour)
            arrows += [Arrow(node, test.high), Arrow(node, test.low, dashed=True)]
        else:
            shapes[node] = Shape(effect_text(binary.effects[-node]), len(rows), _LEAF)
    return _svg(shapes, arrows)


def _predicate(compiled: Compiled, predicate: Predicate) -> str:
    place = compiled.order[predicate.level]
    field = compiled.schema.fields[place]
    return bounds_text(field.name, predicate.values, field.width)


def bounds_text(name: str, values: Bounds, width: int) -> str:
    """Returns a set of values as a test: `price > 50`."""
    size = 1 << width
    if values[0] == ABSENT and len(values) == 2:
        return f"no {name}" if values[1] == 0 else f"no {name} or < {_number(values[1], width)}"
    if len(values) == 2:
        low, high = values
        if high - low == 1:
            return f"{name} == {_number(low, width)}"
        if high == size:
            return f"{name} >= {_number(low, width)}" if low else f"any {name}"
        return (
            f"{name} < {_number(high, width)}"
            if low == 0
            else f"{_number(low, width)} ≤ {name} < {_number(high, width)}"
        )
    return f"{name} in {len(values) // 2} ranges"


def _number(value: int, width: int) -> str:
    """Returns a value as a string if it reads as one, else as a number."""
    if width >= 24 and width % 8 == 0 and value >> (width - 8):
        data = value.to_bytes(width // 8).rstrip(b" \0")
        if data and data.isascii() and data.decode().isprintable():
            return data.decode()
    return str(value)


def effect_text(effect: Effect) -> str:
    """Returns what becomes of a packet as a rule's action would say it."""
    parts = []
    if effect.ports:
        parts.append(f"fwd({', '.join(map(str, effect.ports))})")
    if effect.custom is not None:
        parts.append(f"{effect.custom[0]}({', '.join(map(str, effect.custom[1]))})")
    parts += [f"variable {number}" for number in effect.updates]
    return ", ".join(parts) or "drop"


# --- the diagram by field


def _by_field(compiled: Compiled) -> str:
    diagram = compiled.diagram
    nodes = _below(
        compiled.root, lambda n: diagram.targets[n - diagram.leaves] if n >= diagram.leaves else ()
    )
    if len(nodes) > MAX_DRAWN:
        raise TooLargeToDraw(len(nodes))
    levels = sorted({diagram.level(node) for node in nodes if node >= diagram.leaves})
    shapes = {}
    arrows = []
    for node in nodes:
        level = diagram.level(node)
        if level < 0:
            shapes[node] = Shape(effect_text(compiled.leaves[node]), len(levels), _LEAF)
            continue
        name, width = _level(compiled, level)
        shapes[node] = Shape(name, levels.index(level), _COLOURS[level % len(_COLOURS)])
        if level == compiled.link_level:
            arrows.append(Arrow(node, diagram.targets[node - diagram.leaves][0]))
        else:
            arrows += _runs(compiled, node, name, width)
    return _svg(shapes, arrows)


def _level(compiled: Compiled, level: int) -> tuple[str, int]:
    if level < compiled.link_level:
        field = compiled.schema.fields[compiled.order[level]]
        return field.name, field.width
    if level == compiled.link_level:
        return "state", 0
    return compiled.schema.counters[level - compiled.link_level - 1].name, 64


def _runs(compiled: Compiled, node: int, name: str, width: int) -> Iterable[Arrow]:
    diagram = compiled.diagram
    cuts = diagram.cuts[node - diagram.leaves]
    texts: dict[int, list[str]] = {}
    for low, high, target in zip(
        cuts, [*cuts[1:], 1 << width], diagram.targets[node - diagram.leaves], strict=True
    ):
        texts.setdefault(target, []).append(bounds_text(name, (low, high), width))
    for target, runs in texts.items():
        yield Arrow(node, target, runs[0] if len(runs) == 1 else f"{len(runs)} runs")


# --- SVG


def _below(root: int, targets: Callable[[int], Sequence[int]]) -> list[int]:
    """Returns all nodes from the root on, in the order in which they are met."""
    found = {root: None}
    left = [root]
    while left:
        node = left.pop(0)
        for target in targets(node):
            if target not in found:
                found[target] = None
                left.append(target)
    return list(found)


def _svg(shapes: dict[int, Shape], arrows: list[Arrow]) -> str:
    rows: dict[int, list[int]] = {}
    for node, shape in shapes.items():
        rows.setdefault(shape.row, []).append(node)
    widest = max(len(row) for row in rows.values())
    width = 2 * _MARGIN + widest * (_WIDE + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max(rows) + 1) * (_HIGH + _GAP_Y) - _GAP_Y
    places: dict[int, tuple[float, float]] = {}
    for row, nodes in rows.items():
        left = (width - len(nodes) * (_WIDE + _GAP_X) + _GAP_X) / 2
        for column, node in enumerate(nodes):
            places[node] = (left + column * (_WIDE + _GAP_X), _MARGIN + row * (_HIGH + _GAP_Y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    lines += [line for arrow in arrows for line in _arrow(arrow, places)]
    lines += [_shape(shape, places[node]) for node, shape in shapes.items()]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _shape(shape: Shape, place: tuple[float, float]) -> str:
    x, y = place
    radius = 3 if shape.colour == _LEAF else _HIGH // 2
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDE}" height="{_HIGH}" rx="{radius}" fill="{shape.colour}" '
        f'stroke="#444"/><text x="{x + _WIDE / 2:.0f}" y="{y + _HIGH / 2 + 4:.0f}" text-anchor="middle">'
        f"{escape(shape.text)}</text>"
    )


def _arrow(arrow: Arrow, places: dict[int, tuple[float, float]]) -> Iterable[str]:
    (x1, y1), (x2, y2) = places[arrow.tail], places[arrow.head]
    x1, y1, x2 = x1 + _WIDE / 2 + (-12 if arrow.dashed else 12), y1 + _HIGH, x2 + _WIDE / 2
    bend = (y2 - y1) / 2
    dash = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    yield (
        f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}" '
        f'fill="none" stroke="#444"{dash} marker-end="url(#head)"/>'
    )
    if arrow.text:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        yield (
            f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" font-size="10" fill="#333" stroke="white" '
            f'stroke-width="3" paint-order="stroke">{escape(arrow.text)}</text>'
        )
