"""Comparisons with peers: `python -m bench` from the repository's root. See docs/benchmarks.md."""
