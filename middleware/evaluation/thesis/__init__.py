"""The figures of the thesis' chapters 3 to 6, measured on the graph-level model of its switches.

Christian Wernecke, Content-based Publish/Subscribe with P4, Rostock 2025.
"""

from __future__ import annotations

from ..figure import Figure
from .chapter3 import FIGURES as CHAPTER_3
from .chapter3_others import FIGURES as CHAPTER_3_OTHERS
from .chapter4 import FIGURES as CHAPTER_4
from .chapter5 import FIGURES as CHAPTER_5
from .chapter6 import FIGURES as CHAPTER_6
from .chapter6_best import FIGURES as CHAPTER_6_BEST
from .chapter6_churn import FIGURES as CHAPTER_6_CHURN
from .elmo import FIGURES as ELMO
from .encoders import FIGURES as ENCODERS
from .labels import FIGURES as LABELS
from .learned import FIGURES as LEARNED
from .printed import FIGURES as PRINTED
from .programs import FIGURES as PROGRAMS

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        *CHAPTER_3,
        *CHAPTER_3_OTHERS,
        *CHAPTER_4,
        *CHAPTER_5,
        *CHAPTER_6,
        *CHAPTER_6_CHURN,
        *CHAPTER_6_BEST,
        *ENCODERS,
        *LABELS,
        *LEARNED,
        *ELMO,
        *PRINTED,
        *PROGRAMS,
    )
}
