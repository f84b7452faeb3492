"""Everything on this host's disk: partition logs and durable tables."""
