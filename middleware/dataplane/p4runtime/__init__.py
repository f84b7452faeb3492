"""The control plane of the embedded P4 target: P4Info, and a P4Runtime server."""
