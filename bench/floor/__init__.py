"""The floor: servers that make a broker's system calls on the same bytes and do nothing else."""
