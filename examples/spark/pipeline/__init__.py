"""The loop from what is sent to shorter headers: `python -m examples.spark.pipeline`."""
