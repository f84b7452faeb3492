"""Parts of `spark_run.py`."""
