"""Our own `core.p4` and `v1model.p4`: the declarations of the specification and the architecture. Pure."""

from __future__ import annotations

import functools
from importlib import resources

NAMES = frozenset({"core.p4", "v1model.p4"})


@functools.cache
def text(name: str) -> str | None:
    """Returns the text of a standard include, or None for an unknown name."""
    if name not in NAMES:
        return None
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
