"""P4Runtime without the network: messages to the switch's values and back, arbitration, reads and writes.
Pure."""
