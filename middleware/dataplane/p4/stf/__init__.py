"""Vectors: text files beside a P4 program with table writes, packets to send, and expected packets.

`parse` reads p4c's .stf language into statements; `runner` executes them on a switch; `compare` describes
differences from an expected packet. All pure.
"""
