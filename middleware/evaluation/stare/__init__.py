"""STARE over emulated switches: the paper's tables, and the basis of the fault run and the example."""

from __future__ import annotations

from ..figure import Figure
from .table3 import FIGURE as TABLE_3
from .table4 import FIGURE as TABLE_4

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (TABLE_3, TABLE_4)}
