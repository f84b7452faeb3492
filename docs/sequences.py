"""Draws the sequence pictures of docs/architecture.md: `python docs/sequences.py` writes docs/images/*.svg.

`python docs/sequences.py --check` fails where a picture is not the one that this file draws.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape

from drawing import DISK, INK, QUIET, WIRE, kept, text

LANE, STEP, TOP, MARGIN = 190, 46, 92, 110


@dataclass(frozen=True)
class Step:
    """An arrow from one lane to another, or, within one lane, something that is done there."""

    origin: int
    target: int
    text: str


@dataclass(frozen=True)
class Picture:
    title: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]


RECORD = Picture(
    "A record of a Kafka topic: produced at A, which leads the partition, read at B",
    ("producer at A", "host A (leader)", "host B (replica)", "consumer at B"),
    (
        Step(3, 2, "Fetch; B is interested in the topic"),
        Step(0, 1, "Produce"),
        Step(1, 1, "check, append to the log"),
        Step(1, 2, "stream: one copy per link"),
        Step(1, 1, "fsync, if policy is batch"),
        Step(1, 0, "Produce answer: acknowledged"),
        Step(2, 3, "Fetch answer"),
        Step(2, 2, "append to the replica"),
        Step(2, 1, "report: received up to here"),
    ),
)

MESSAGE = Picture(
    "An MQTT message of QoS 1: published at A, subscribed to at B",
    ("publisher at A", "host A (origin)", "host B", "subscriber at B"),
    (
        Step(3, 2, "SUBSCRIBE; B is interested in the topic"),
        Step(0, 1, "PUBLISH"),
        Step(1, 1, "place in the stream, store in journal"),
        Step(1, 1, "fsync, if policy is batch"),
        Step(1, 2, "stream: one copy per link"),
        Step(1, 0, "PUBACK: acknowledged"),
        Step(2, 2, "hand to sessions, store in journal"),
        Step(2, 2, "fsync, if policy is batch"),
        Step(2, 3, "PUBLISH"),
        Step(2, 1, "report: stored up to here"),
        Step(1, 1, "journal lets go of the message"),
    ),
)

PICTURES = {"record.svg": RECORD, "message.svg": MESSAGE}


def drawn(picture: Picture) -> str:
    """The picture as SVG, on a light card, so that it reads on light and dark pages alike."""
    width = 2 * MARGIN + LANE * (len(picture.lanes) - 1)
    height = TOP + STEP * len(picture.steps) + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f"<title>{escape(picture.title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" '
        f'markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
        "</marker></defs>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        text(width // 2, 26, picture.title, size=14, weight="bold"),
    ]
    for number, name in enumerate(picture.lanes):
        lines += _lane(MARGIN + LANE * number, name, height)
    for number, step in enumerate(picture.steps):
        lines += _step(step, TOP + STEP * number + 24)
    return "\n".join([*lines, "</svg>", ""])


def _lane(x: int, name: str, height: int) -> list[str]:
    return [
        f'<line x1="{x}" y1="{TOP - 16}" x2="{x}" y2="{height - 12}" stroke="{QUIET}" '
        'stroke-dasharray="3 4"/>',
        f'<rect x="{x - 70}" y="{TOP - 46}" width="140" height="30" rx="5" fill="#f0f4f8" stroke="{QUIET}"/>',
        text(x, TOP - 26, name, weight="bold"),
    ]


def _step(step: Step, y: int) -> list[str]:
    first, last = MARGIN + LANE * step.origin, MARGIN + LANE * step.target
    if step.origin == step.target:
        box = f'<rect x="{first - 90}" y="{y - 15}" width="180" height="28" rx="4"'
        return [f'{box} fill="#fffaf0" stroke="{DISK}"/>', text(first, y + 3, step.text, size=10)]
    line = f'<line x1="{first}" y1="{y}" x2="{last}" y2="{y}" marker-end="url(#head)"'
    between = {step.origin, step.target} == {1, 2}
    return [
        f'{line} stroke="{WIRE if between else INK}" stroke-width="{2 if between else 1}"/>',
        text((first + last) // 2, y - 7, step.text, size=10),
    ]


if __name__ == "__main__":
    drawn_now = {name: drawn(picture) for name, picture in PICTURES.items()}
    sys.exit(kept("docs/sequences.py", drawn_now, sys.argv[1:]))
