"""The sockets of a host's edge: UDP in bursts, Ethernet frames, memberships of groups, interfaces. Linux."""
