"""The VNFs of each host, as in the paper's figure 7."""

from __future__ import annotations

VNFS = {"h1": ("a",), "h2": ("b", "c"), "h3": ("d",)}
