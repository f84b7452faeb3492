"""STARE's switches: what they are programmed with, and the controller beside one of the embedded design."""
