"""The encoders for figures: Algorithm 5.1, mended, in several orders, and ours.

"steepest" is `virtual.steepest`. "ours" is the publishers' encoder for each notification; "thorough" finds
the fewest labels in more time.
"""

from __future__ import annotations

from collections.abc import Callable

from ...routing.network import Network, RoutingError
from ...routing.virtual import reference
from ...routing.virtual.encoder import Encoder
from ...routing.virtual.rules import RuleBase
from ...routing.virtual.stacks import Encoding, Request
from ...routing.virtual.steepest import SteepestEncoder
from ...routing.virtual.thorough import ThoroughEncoder

ORDERS = ("largest", "overlap", "gain")
ENCODERS = (*ORDERS, "given", "steepest", "ours", "thorough")


def encoder_of(name: str, network: Network, rules: RuleBase) -> Callable[[Request], Encoding]:
    """Returns a function from requests to encodings. Raises RoutingError if no encoder is so named."""
    if name == "ours":
        return Encoder(network, rules).encode
    if name == "thorough":
        return ThoroughEncoder(network, rules).encode
    if name == "steepest":
        return SteepestEncoder(network, rules).encode
    if name not in (*ORDERS, "given"):
        raise RoutingError(f"no encoder {name!r}; there are {', '.join(ENCODERS)}")
    return lambda asked: reference.encode(network, rules, asked, order=name)
