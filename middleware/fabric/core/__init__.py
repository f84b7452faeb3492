"""Streams as state machines: input is segments and `now`; output is segments, messages and a deadline."""
