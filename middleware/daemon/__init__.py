"""One host's daemon: its configuration, its composition, its admin interfaces and its metrics."""
