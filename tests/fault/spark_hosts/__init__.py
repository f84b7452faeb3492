"""Spark over several hosts of a lab: see `__main__`."""
