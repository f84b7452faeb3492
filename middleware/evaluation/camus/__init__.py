"""Camus: packet subscriptions compiled and routed.

"Forwarding and Routing With Packet Subscriptions" (IEEE/ACM Transactions on Networking, 2022) and the
slides of "High-Throughput Publish/Subscribe in the Forwarding Plane". Nothing of an ASIC is measured:
entries, key bits, groups, and the blocks of a stated model.
"""

from __future__ import annotations

from ..figure import Figure
from .changes import FIGURE as CHANGES
from .fat_tree_live import FIGURE as FAT_TREE
from .fig8 import FIGURE as FIG_8
from .fig9 import FIGURE as FIG_9
from .fig11 import FIGURE as FIG_11
from .fig12 import FIGURE as FIG_12
from .fig13 import FIGURE as FIG_13
from .fig14 import FIGURE as FIG_14
from .fig15 import FIGURE as FIG_15
from .rules100k import FIGURE as RULES_100K
from .table1 import FIGURE as TABLE_1

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        RULES_100K,
        CHANGES,
        FAT_TREE,
        FIG_8,
        FIG_9,
        FIG_11,
        FIG_12,
        FIG_13,
        FIG_14,
        FIG_15,
        TABLE_1,
    )
}
