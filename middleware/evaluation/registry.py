"""All results of `treecast eval`, by name."""

from __future__ import annotations

from .camus import FIGURES as CAMUS
from .figure import Figure
from .snaps import FIGURES as SNAPS
from .stare import FIGURES as STARE
from .thesis import FIGURES as THESIS


def figures() -> dict[str, Figure]:
    """Returns all figures by name."""
    return {**STARE, **SNAPS, **CAMUS, **THESIS}
