"""Streams as state machines: segments and `now` go in, segments, messages and a deadline come out."""
