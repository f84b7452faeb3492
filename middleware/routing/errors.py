"""What the routing room refuses."""

from __future__ import annotations


class RoutingError(ValueError):
    """A network, a receiver set or a limit that no tree or stack can serve. The text says which."""


class Unreachable(RoutingError):
    """There is no way between two nodes that a tree shall join: the network is in parts."""
