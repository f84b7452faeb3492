"""Random bytes that are almost right, for each face of a real daemon: `python -m tests.fuzz.live`."""
