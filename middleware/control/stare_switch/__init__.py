"""STARE's switches: their programming, and the controller beside a switch of the embedded design."""
