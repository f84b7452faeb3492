"""Numbers of the calls about event streams, what may be chosen about them, and who sends by them."""

from __future__ import annotations

import enum

from msgspec import Struct


class EventMethod(enum.IntEnum):
    """Of the range 120-139; their messages are those of `peer_events.proto`."""

    OPEN = 120
    RETAINED = 121
    SHARE = 122


class EventSettings(Struct, frozen=True):
    """Times in seconds, sizes in bytes."""

    batch_bytes: int = 256 * 1024  # of messages that go as one; a message alone may be larger
    log_bytes: int = 16 << 20  # of one stream, for hosts that lack something; what is beyond has expired
    log_age: float = 3600.0
    fleeting: float = 10.0  # what may be lost is kept so long for a host that lacks it
    queue_bytes: int = 64 << 20  # of one stream, while it cannot be sent; then messages are dropped
    open_wait: float = 1.0  # for members to answer, before a stream is used all the same
    call: float = 5.0
    retry: float = 0.5  # after a member could not be asked
    refusals: int = 60  # of a member that does not know these calls; then it is left out
    tick: float = 0.1
    idle: float = 60.0  # a stream that nothing was published in is closed
    most_streams: int = 64  # beyond it, messages go to more hosts than want them
    most_topics: int = 65_536  # of which the stream they went by is remembered
    retained_wait: float = 1.0  # for what other hosts have retained
    share_wait: float = 1.0  # for homes of shared subscriptions to know of a member
    share_again: float = 2.0  # after a home was not found, or did not answer
    page_bytes: int = 4 << 20  # of retained messages in one answer
    over: float = 10.0  # after its end a stream is received no more
    accounts_every: float = 2.0  # what receivers have counted is written down


FIRST_STREAM = 1 << 31
"""Ids of event streams begin here; those of partitions are below."""
