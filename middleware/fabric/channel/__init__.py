"""The reliable channel between daemons: authenticated, ordered, flow-controlled calls with answers."""

from __future__ import annotations

from .channels import Channels, vouch_again
from .codec import channel_key
from .dispatch import ECHO, Echo, Handler, Later, Method, Methods, Natural, Nothing, Reply
from .ports import listen_on_one_number
from .settings import ChannelSettings
from .tls import ChannelTls
from .values import Answer, ChannelError, PeerStatus

__all__ = [
    "Answer",
    "ChannelError",
    "ChannelSettings",
    "ChannelTls",
    "Channels",
    "Handler",
    "Later",
    "Method",
    "Natural",
    "Nothing",
    "ECHO",
    "Echo",
    "Methods",
    "PeerStatus",
    "Reply",
    "channel_key",
    "vouch_again",
    "listen_on_one_number",
]
