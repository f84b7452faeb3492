"""One host's daemon: configuration, composition, admin interfaces and metrics."""
