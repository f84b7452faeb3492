"""A software switch: the embedded P4 target on network interfaces, with a P4Runtime endpoint."""
