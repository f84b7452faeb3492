"""The calls about event streams, methods 120-139 of the channel, and what may be chosen about them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treecast.middleware.fabric.channel import Method, Natural, Nothing


class EventOpen(Struct, frozen=True, array_like=True):
    """The receiver is asked to receive an event stream of the caller, before its first use and whenever there
    is a new connection.

    `first`: where a host begins that does not receive it yet. Nothing before (`settled_epoch`,
    `settled_stream`) will be sent again. `asks_ended`: how streams of earlier epochs have ended.
    """

    stream: Natural
    epoch: Natural
    first: Natural = 0
    settled_epoch: Natural = 0
    settled_stream: Natural = 0
    asks_ended: bool = False


class EventEnded(Struct, frozen=True, array_like=True):
    """What the answering host knows of a stream of an earlier epoch of the caller.

    `passed`: the highest number that it has taken of what was first sent by this stream; 0: none. `report`:
    the body of its last report; empty where it has forgotten how it received the stream. `known`: it knew of
    records before this sequence. `number`: the highest number of a message that the stream has brought,
    whichever sent it first.
    """

    epoch: Natural
    stream: Natural
    passed: Natural = 0
    report: bytes = b""
    known: Natural = 0
    number: Natural = 0


class EventOpened(Struct, frozen=True, array_like=True):
    """`kept`: it received the stream already, and goes on. `next`: all before it is settled here. `ended`:
    where it was asked for."""

    kept: bool
    next: Natural
    ended: list[EventEnded] = []


class RetainedRequest(Struct, frozen=True, array_like=True):
    """What the receiver has retained in the topics that the filters match, as MQTT spells them; `skip` of
    them were answered before. The answer's body are record batches, tombstones among the records."""

    filters: list[bytes]
    skip: Natural = 0


class RetainedResponse(Struct, frozen=True, array_like=True):
    """`count`: topics that are in the body. `more`: others follow; ask again."""

    count: Natural
    more: bool


class ShareRequest(Struct, frozen=True, array_like=True):
    """To the home of a shared subscription: how many of its members are the caller's clients.
    NOT_COORDINATOR where it is not at home there."""

    name: bytes
    filter: bytes
    members: Natural


OPEN: Final = Method(120, EventOpen, EventOpened)
RETAINED: Final = Method(121, RetainedRequest, RetainedResponse)
SHARE: Final = Method(122, ShareRequest, Nothing)


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
