"""STARE over 20 lossy emulated switches, subscriptions coming and going: `python -m tests.fault.stare`."""
