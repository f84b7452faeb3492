"""The Spark sink: rows into records, staged by tasks and committed by the driver."""
