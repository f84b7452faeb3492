"""STARE's middleware at a host: subscriptions with its switch, states out and in. docs/stare.md."""
