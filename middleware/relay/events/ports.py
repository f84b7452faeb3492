"""The calls about event streams, methods 120-139 of the channel, their settings, and what all parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.fabric.channel import Method, Methods, Natural, Nothing

if TYPE_CHECKING:
    from treecast.middleware.broker.pubsub import PubSub
    from treecast.middleware.broker.turn import Turn
    from treecast.middleware.fabric.fabric import Fabric
    from treecast.middleware.model.counters import EventCounters

    from .sending import Outbox, RemoteHost


class EventOpen(Struct, frozen=True, array_like=True):
    """Asks a host to receive an event stream of the caller, before its first use and after each reconnect.

    `first`: where a host begins that does not receive it yet. No message first sent by a stream before
    (`settled_epoch`, `settled_stream`) will be sent again. `asks_ended`: whether the answer must tell how
    streams of earlier epochs ended.
    """

    stream: Natural
    epoch: Natural
    first: Natural = 0
    settled_epoch: Natural = 0
    settled_stream: Natural = 0
    asks_ended: bool = False


class EventEnded(Struct, frozen=True, array_like=True):
    """The answering host's state of a stream of an earlier epoch of the caller.

    `passed`: the highest number it has taken of messages first sent by this stream; 0: none. `report`: the
    body of its last report; empty if it has forgotten how it received the stream. `known`: it knew of records
    before this sequence. `number`: the highest number of a message that the stream has brought, whichever
    stream first sent it.
    """

    epoch: Natural
    stream: Natural
    passed: Natural = 0
    report: bytes = b""
    known: Natural = 0
    number: Natural = 0


class EventOpened(Struct, frozen=True, array_like=True):
    """`kept`: the host already received the stream and continues. `next`: all before it is settled here.
    `ended`: filled if asked for. `filters`: the host takes skips of messages that are not for it, as no
    earlier version does."""

    kept: bool
    next: Natural
    ended: list[EventEnded] = []
    filters: bool = False


class RetainedRequest(Struct, frozen=True, array_like=True):
    """Asks for the retained messages in topics that match the MQTT filters.

    `skip`: how many earlier answers have returned. The answer's body holds record batches, which include
    tombstones.
    """

    filters: list[bytes]
    skip: Natural = 0


class RetainedResponse(Struct, frozen=True, array_like=True):
    """`count`: number of topics in the body. `more`: whether to ask again for further ones."""

    count: Natural
    more: bool


class ShareRequest(Struct, frozen=True, array_like=True):
    """Tells the home of a shared subscription how many of its members are clients of the caller, and how many
    of these are `away`: not connected.

    Refused with NOT_COORDINATOR by a host that is not the home.
    """

    name: bytes
    filter: bytes
    members: Natural
    away: Natural = 0


OPEN: Final = Method(120, EventOpen, EventOpened)
RETAINED: Final = Method(121, RetainedRequest, RetainedResponse)
SHARE: Final = Method(122, ShareRequest, Nothing)


class EventSettings(Struct, frozen=True):
    """Times in seconds, sizes in bytes."""

    batch_bytes: int = 256 * 1024  # limit of a batch of messages; a single message may be larger
    log_bytes: int = 16 << 20  # log of one stream, for repairs; older records expire
    log_age: float = 3600.0
    fleeting: float = 10.0  # how long messages that may be lost are available for repairs
    queue_bytes: int = 64 << 20  # queue of one stream that cannot be sent; beyond it messages are dropped
    open_wait: float = 1.0  # wait for members' answers before a stream is used anyway
    call: float = 5.0
    retry: float = 0.5  # pause after a failed call to a member
    refusals: int = 60  # after so many refusals, a member that does not know these calls is left out
    tick: float = 0.1
    idle: float = 60.0  # time without messages after which a stream is closed
    most_streams: int = 64  # beyond it, messages also go to hosts that do not want them
    most_topics: int = 65_536  # topics whose last stream is remembered
    retained_wait: float = 1.0  # wait for other hosts' retained messages
    share_wait: float = 1.0  # wait for homes of shared subscriptions to know a new member
    share_again: float = 2.0  # pause after a home was not found or did not answer
    share_forget: float = 3600.0  # how long messages wait at least for members that no host announces
    page_bytes: int = 4 << 20  # retained messages in one answer
    over: float = 10.0  # interval of checks for streams that have ended
    accounts_every: float = 2.0  # interval of writing accounts


FIRST_STREAM = 1 << 31
"""Ids of event streams begin here; those of partitions are below."""


class Common:
    """The state that sending and receiving share. `remotes`: the hosts with any interest so far; it is
    updated in place."""

    __slots__ = ("counters", "fabric", "hub", "methods", "outbox", "remotes", "settings", "turn")

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        outbox: Outbox,
        remotes: dict[int, RemoteHost],
        methods: Methods,
        fabric: Fabric,
        settings: EventSettings,
        counters: EventCounters,
    ) -> None:
        self.hub = hub
        self.turn = turn
        self.outbox = outbox
        self.remotes = remotes
        self.methods = methods
        self.fabric = fabric
        self.settings = settings
        self.counters = counters
