"""The Spark source: what is to be read, how it is cut into tasks, and the reading."""
