"""All results that `treecast eval` knows, by name."""

from __future__ import annotations

from .figure import Figure
from .snaps import FIGURES as SNAPS
from .stare import FIGURES as STARE
from .thesis import FIGURES as THESIS


def figures() -> dict[str, Figure]:
    """Name to figure."""
    return {**STARE, **SNAPS, **THESIS}
