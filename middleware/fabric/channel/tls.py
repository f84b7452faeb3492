"""TLS of the channels of a secured host."""

from __future__ import annotations

import ssl
from collections.abc import Callable


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
