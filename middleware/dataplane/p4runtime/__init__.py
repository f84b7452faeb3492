"""A P4Runtime endpoint for a switch of the embedded P4 target: the device, and the gRPC server in front of
it."""
