"""Spark on a daemon: `python -m examples.spark.mobility` and `python -m examples.spark.telemetry`."""
