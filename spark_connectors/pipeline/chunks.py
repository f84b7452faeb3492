"""Parts of an archive that are computed one after the other, so that memory does not depend on its length.

Pure. Names are those of minutes, or of windows: their starts in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MOST: Final = 300_000  # intervals of a part: 25 minutes of 2,000 hosts that write every 10 s
_NAMES: Final = 10_000  # of a part: a week of minutes


def parts(sizes: Mapping[int, int], names: Iterable[int], most: int) -> Iterator[list[int]]:
    """Yields `names` in ascending order, in lists whose sizes add up to `most` or less. One that is larger
    than that is alone. What `sizes` does not name has none.
    """
    part: list[int] = []
    room = most
    for name in sorted(names):
        size = sizes.get(name, 0)
        if part and (size > room or len(part) == _NAMES):
            yield part
            part, room = [], most
        part.append(name)
        room -= size
    if part:
        yield part


def runs(names: Iterable[int], step: int) -> Iterator[tuple[int, int]]:
    """Yields (first, last) of the names that follow each other by `step`."""
    first = last = None
    for name in sorted(names):
        if first is None or last is None:
            first = name
        elif name != last + step:
            yield first, last
            first = name
        last = name
    if first is not None and last is not None:
        yield first, last
