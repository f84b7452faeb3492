"""The Spark source: planning of a read, division into tasks, and reading."""
