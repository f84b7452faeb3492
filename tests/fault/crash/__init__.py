"""The crash run: load, kill -9, restart, verify. Started by ../crash_run.py."""
