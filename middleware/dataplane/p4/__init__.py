"""The embedded P4_16 target for v1model: front end, interpreter, tables, and what control planes see. Pure.

Who does what stands in docs/decisions/2026-11-21-p4-target-rooms.md.
"""
