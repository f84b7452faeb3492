"""The parts of the programs that draw pictures of the pages: a line of text, and files kept or checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"
INK, QUIET, DISK, WIRE = "#1f2933", "#7b8794", "#b7791f", "#2b6cb0"


def text(
    x: float, y: float, text: str, size: int = 12, weight: str = "normal", anchor: str = "middle"
) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{INK}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'


def kept(program: str, pictures: Mapping[str, str], words: Sequence[str]) -> int:
    """Writes the pictures, SVG by file name. With `--check` it returns 1 if one is not what is written."""
    stale = 0
    for name, svg in pictures.items():
        path = IMAGES / name
        if "--check" not in words:
            path.write_text(svg, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != svg:
            print(f"{path} is stale: run python {program}", file=sys.stderr)
            stale = 1
    return stale
