"""STARE's replica controller: VNF ids, the backlog of updates, recovery, truncation. See docs/stare.md."""
