"""The floor: a server that makes a broker's system calls on the same bytes and does nothing else."""
