"""Fuzzing with atheris: `python -m tests.fuzz TARGET`."""
