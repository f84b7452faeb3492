"""Bytes to values and back. Pure: no I/O, no clock, no randomness."""
