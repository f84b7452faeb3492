"""Vectors: text files beside a P4 program that say what is written to its tables, sent and expected.

`parse` reads p4c's .stf language into statements; `runner` executes them on a switch; `compare` says
where a packet differs from what was expected. All pure.
"""
