"""STARE's replica controller: VNF ids, the backlog of updates, recovery, truncation. docs/stare.md."""
