"""SNAPS' section IV: numbers of replication segments, alone and shared (A), RabbitMQ servers with
agents beside federation, and traffic engineering (B).

"SNAPS: Seamless Network-Assisted Publish-Subscribe", Nokia Bell Labs. The paper calls segments BSIDs.
"""

from __future__ import annotations

from ..figure import Figure
from .churn import FIGURE as CHURN
from .fig5 import FIGURE as FIG_5
from .fig6 import FIGURE as FIG_6
from .fig7 import FIGURE as FIG_7
from .fig8 import FIGURE as FIG_8
from .fig9 import FIGURE as FIG_9
from .fig10 import FIGURE as FIG_10
from .printed import FIGURE as PRINTED

_ALL = (FIG_5, FIG_6, FIG_7, FIG_8, FIG_9, FIG_10, PRINTED, CHURN)
FIGURES: dict[str, Figure] = {figure.name: figure for figure in _ALL}
