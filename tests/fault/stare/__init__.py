"""STARE over 20 lossy emulated switches with changing subscriptions: `python -m tests.fault.stare`."""
