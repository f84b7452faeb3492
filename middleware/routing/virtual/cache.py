"""Stacks as bytes, cached by receiver set: a hit is one look-up in a dictionary."""

from __future__ import annotations

from ...wire.label_stack import encode_labels
from ..network import RoutingError
from .encoder import Encoder
from .stacks import Request, check_encoding, check_ids

CACHED = 4096


class Stacks(dict[int, bytes]):
    """The stacks of one publisher: `stacks[receivers as bits]`.

    Missing entries are encoded. It is a dictionary itself so that a hit costs no call. It is bounded: when
    full, it is cleared. Create a new one when rules change. Raises RoutingError for an empty set, a set with
    the publisher, unknown nodes, unreachable receivers, and stacks that exceed a frame.
    """

    __slots__ = ("_encoder", "_most", "_source")

    def __init__(self, encoder: Encoder, source: int, most: int = CACHED) -> None:
        super().__init__()
        check_ids(encoder.network)
        self._encoder = encoder
        self._source = source
        self._most = most

    def __missing__(self, receivers: int) -> bytes:
        network = self._encoder.network
        start = network.switch_of(self._source)
        clients = network.host_mask or (1 << network.node_count) - 1
        if receivers <= 0 or receivers & ~clients or receivers >> self._source & 1:
            raise RoutingError("there must be at least one receiver, and the publisher must not be one")
        access = network.edge_masks[self._source] if network.is_host[self._source] else 0
        found = self._encoder.encode(Request(start, access, receivers))
        check_encoding(found)
        if len(self) >= self._most:
            self.clear()
        stack = self[receivers] = encode_labels(found.labels)
        return stack
