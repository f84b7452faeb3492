"""The sockets of a host's edge: UDP in bursts, Ethernet frames, group memberships, interfaces. Linux."""
