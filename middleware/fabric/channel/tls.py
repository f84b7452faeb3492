"""TLS of the channels of a secured host."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from treecast.middleware.model.visitors import Limits


class ChannelTls:
    """`server` and `client`: the contexts of both ends, which ask each other for certificates.

    `vouch` returns why a host (id) may not be the holder of a connection's certificate (`ssl.SSLObject`);
    empty: it may.
    """

    def __init__(
        self, server: ssl.SSLContext, client: ssl.SSLContext, vouch: Callable[[int, object], str]
    ) -> None:
        self.server = server
        self.client = client
        self.vouch = vouch


def strangers(handshakes: int) -> Limits:
    """Returns the limits of TLS handshakes in progress, of which there may be `handshakes` in all."""
    new = max(handshakes // 2, 1)
    return Limits(most=handshakes, new=new, new_each=max(new // 8, 1))
