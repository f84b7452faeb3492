"""Host to host: streams over carriers, with loss recovery and accounting. `core` is pure."""
