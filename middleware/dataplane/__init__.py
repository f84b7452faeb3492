"""The data plane on one machine: lab, P4 target, emulator, software switch and P4Runtime endpoint."""
