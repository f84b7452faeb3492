"""Networks from the text of files, from topohub, and from generators."""

from __future__ import annotations

from .datacenter import facebook_fabric, fat_tree
from .graphml import parse_graphml
from .hub import from_topohub
from .jellyfish import jellyfish
from .regular import isp, k_ary_tree
from .repetita import parse_repetita

__all__ = [
    "facebook_fabric",
    "fat_tree",
    "from_topohub",
    "isp",
    "jellyfish",
    "k_ary_tree",
    "parse_graphml",
    "parse_repetita",
]
