"""The authority of a secured cluster: who may join, whose certificates hold, which keys protect segments."""
