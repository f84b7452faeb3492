"""STARE over emulated switches: the paper's tables, and what the fault run and the example stand on."""
