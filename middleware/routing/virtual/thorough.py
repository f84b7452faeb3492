"""The fewest labels that we can find, for callers with tens of milliseconds per notification.

The best of a wide search and of Algorithm 5.1's choices in four orders and by steepest gain, each extended
and improved by local search. So it is never worse than any of these, and usually better than all.
"""

from __future__ import annotations

from typing import Final

from ..network import Network
from . import reference
from .encoder import Encoder
from .rules import RuleBase
from .stacks import Encoding, Request
from .steepest import SteepestEncoder

STARTS: Final = 4
TRIED: Final = 16
TRIED_ORDERS: Final = ("given", "largest", "overlap", "gain")


class ThoroughEncoder:
    """Encodes for one rule base as it is now, as `encoder.Encoder` does."""

    def __init__(self, network: Network, rules: RuleBase) -> None:
        self._network, self._rules = network, rules
        self._quick = Encoder(network, rules)
        self._steepest = SteepestEncoder(network, rules)
        self._wide = Encoder(network, rules, tried=TRIED, starts=STARTS, grown=TRIED)

    def encode(self, asked: Request) -> Encoding:
        """Returns the encoding. Raises RoutingError if a receiver is unreachable."""
        found = [self._wide.encode(asked), self._quick.encode(asked)]
        thesis = [reference.encode(self._network, self._rules, asked, order=order) for order in TRIED_ORDERS]
        for theirs in [*thesis, self._steepest.encode(asked)]:
            found.append(theirs)
            if theirs.trees:
                found.append(self._wide.go_on(asked, list(theirs.trees)))
        return min(found, key=lambda one: (one.label_count, one.edges.bit_count()))
