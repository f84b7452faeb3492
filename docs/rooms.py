"""Draws the box pictures of docs/architecture.md: `python docs/rooms.py` writes docs/images/*.svg.

`python docs/rooms.py --check` fails where a picture is not the one that this file draws. The pictures are
narrow enough to be read on a phone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape

from drawing import INK, QUIET, WIRE, kept, text

WIDTH, MARGIN, GAP, BOX, STEP, TOP = 560, 16, 14, 58, 96, 52  # STEP: from the top of a row to the next one's
FILLS = {"client": "#ffffff", "room": "#f0f4f8", "disk": "#fffaf0", "wire": "#ebf4ff"}


@dataclass(frozen=True)
class Box:
    """A box from column `begin` to `end` of a row, which has as many columns as its picture says."""

    row: int
    begin: float
    end: float
    title: str
    text: str = ""
    kind: str = "room"


@dataclass(frozen=True)
class Picture:
    """`arrows`: the indexes of two boxes, the second one below the first, and a label."""

    title: str
    columns: int
    boxes: tuple[Box, ...]
    arrows: tuple[tuple[int, int, str], ...]


ONE_HOST = Picture(
    "One host: faces, broker, owner",
    3,
    (
        Box(0, 0, 1, "Kafka clients", kind="client"),
        Box(0, 1, 2, "MQTT clients", kind="client"),
        Box(0, 2, 3, "AMQP clients", kind="client"),
        Box(1, 0, 1, "shims/kafka"),
        Box(1, 1, 2, "shims/mqtt"),
        Box(1, 2, 3, "shims/amqp"),
        Box(2, 0, 3, "broker", "topics, partitions, groups, transactions, queues"),
        Box(3, 0, 1.5, "storage", "partition logs, durable tables", "disk"),
        Box(3, 1.5, 3, "cluster look-up", "returns the owner"),
        Box(4, 0, 3, "owner", "a partition's leader, a group's home, a transaction's home"),
    ),
    (
        (0, 3, ""),
        (1, 4, ""),
        (2, 5, ""),
        (3, 6, ""),
        (4, 6, ""),
        (5, 6, ""),
        (6, 7, "appends"),
        (6, 8, "asks"),
        (8, 9, "here, or a stand-in"),
    ),
)

SEVERAL_HOSTS = Picture(
    "Several hosts: the relay in front of the broker's own parts",
    2,
    (
        Box(0, 0, 2, "broker.LocalParts", "what this host owns: its partitions, groups, transactions"),
        Box(1, 0, 2, "relay.RelayCluster", "used by faces, the control service, transactions"),
        Box(2, 0, 0.66, "relay/partitions", "led, replicas"),
        Box(2, 0.66, 1.33, "relay/homes", "groups, transactions"),
        Box(2, 1.33, 2, "definitions, view", "kept in tables"),
        Box(3, 0, 1.33, "neighbours", "the hosts that are known here"),
        Box(3, 1.33, 2, "link"),
        Box(4, 0, 0.66, "fabric", "UDP: streams", "wire"),
        Box(4, 0.66, 1.33, "channel", "TCP: calls", "wire"),
        Box(4, 1.33, 2, "coordinator", "here or elsewhere", "wire"),
    ),
    (
        (0, 1, "JoinCluster"),
        (1, 2, ""),
        (1, 3, ""),
        (1, 4, ""),
        (2, 5, ""),
        (3, 5, ""),
        (4, 6, ""),
        (5, 7, ""),
        (5, 8, ""),
        (6, 9, ""),
    ),
)

PICTURES = {"one-host.svg": ONE_HOST, "several-hosts.svg": SEVERAL_HOSTS}


def drawn(picture: Picture) -> str:
    """The picture as SVG, on a light card, so that it reads on light and dark pages alike."""
    height = TOP + STEP * max(box.row for box in picture.boxes) + BOX + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="Helvetica, Arial, sans-serif" font-size="14">',
        f"<title>{escape(picture.title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" '
        f'markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
        "</marker></defs>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        text(WIDTH / 2, 28, picture.title, size=14, weight="bold"),
    ]
    for first, last, label in picture.arrows:
        lines += _arrow(picture, picture.boxes[first], picture.boxes[last], label)
    for box in picture.boxes:
        lines += _box(picture, box)
    return "\n".join([*lines, "</svg>", ""])


def _span(picture: Picture, box: Box) -> tuple[float, float]:
    """The left and right edge of a box."""
    column = (WIDTH - 2 * MARGIN + GAP) / picture.columns
    return round(MARGIN + column * box.begin, 1), round(MARGIN + column * box.end - GAP, 1)


def _box(picture: Picture, box: Box) -> list[str]:
    left, right = _span(picture, box)
    top, middle = TOP + STEP * box.row, round((left + right) / 2, 1)
    wide = round(right - left, 1)
    lines = [
        f'<rect x="{left}" y="{top}" width="{wide}" height="{BOX}" rx="6" fill="{FILLS[box.kind]}" '
        f'stroke="{WIRE if box.kind == "wire" else QUIET}"/>',
        text(middle, top + (26 if box.text else 34), box.title, size=14, weight="bold"),
    ]
    return [*lines, text(middle, top + 45, box.text, size=13)] if box.text else lines


def _arrow(picture: Picture, first: Box, last: Box, label: str) -> list[str]:
    """A line straight down, in the middle of what the narrower box has below the other."""
    (left, right), (other_left, other_right) = _span(picture, first), _span(picture, last)
    x = round((max(left, other_left) + min(right, other_right)) / 2, 1)
    begin, end = TOP + STEP * first.row + BOX, TOP + STEP * last.row - 1
    lines = [f'<line x1="{x}" y1="{begin}" x2="{x}" y2="{end}" stroke="{INK}" marker-end="url(#head)"/>']
    if label:
        lines.append(text(x + 10, (begin + end) / 2 + 4, label, size=13, anchor="start"))
    return lines


if __name__ == "__main__":
    drawn_now = {name: drawn(picture) for name, picture in PICTURES.items()}
    sys.exit(kept("docs/rooms.py", drawn_now, sys.argv[1:]))
