"""Kills of the pipeline on Spark, of its workers and of the daemon beside it."""
