"""Two sessions joined in memory, without sockets or clocks."""

from __future__ import annotations

from collections.abc import Callable

from treecast.middleware.fabric.channel.codec import NO_CONNECTION, Frame, Kind, decode_frame
from treecast.middleware.fabric.channel.greeting import Identity
from treecast.middleware.fabric.channel.incoming import Ended, Event, Opened, Proven, Scratch
from treecast.middleware.fabric.channel.outgoing import Call, CallQueue
from treecast.middleware.fabric.channel.session import Session
from treecast.middleware.fabric.channel.settings import ChannelSettings

KEY = b"k" * 32
CLUSTER = "a cluster"
LIMIT = 1 << 20


def identity(
    host_id: int, *, incarnation: int = 1, cluster: str = CLUSTER, key: bytes | None = KEY
) -> Identity:
    return Identity(host_id, incarnation, cluster, key)


def session(
    own: Identity,
    expected: int = 0,
    settings: ChannelSettings = ChannelSettings(),  # noqa: B008
    *,
    last: bytes = NO_CONNECTION,
    nonce: bytes = b"",
    scratch: int = 64 * 1024,
) -> Session:
    drawn = nonce or bytes([own.host_id, expected]) * 8
    return Session(own, settings, Scratch(scratch), drawn, 0.0, expected, last)


class End:
    """A session with its queue of calls and all events that it has reported."""

    def __init__(self, made: Session) -> None:
        self.session = made
        self.queue = CallQueue()
        self.events: list[Event] = []
        self.opened = False

    def call(self, number: int, head: bytes = b"", body: bytes = b"", kind: Kind = Kind.CALL) -> Call:
        call = Call(kind, number, head, body)
        self.queue.add(call)
        if self.opened:
            self.session.call_added(call)
        return call

    def take(self, events: list[Event]) -> None:
        """Handles a handshake as the channels do: the host with the lower id opens at once."""
        self.events += events
        for event in events:
            if isinstance(event, Proven) and self.session.chooses:
                self.session.open()
                self._attach()
            elif isinstance(event, Opened):
                self._attach()

    def _attach(self) -> None:
        self.opened = True
        self.session.attach(self.queue)

    def data(self, limit: int = LIMIT) -> bytes:
        return b"".join(map(bytes, self.session.data_to_send(limit)))

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def end(self) -> Ended:
        (ended,) = self.of(Ended)
        assert isinstance(ended, Ended)
        return ended


class Pair:
    """A dialler and an acceptor. `pump` moves bytes, through `change` if given, until both are quiet."""

    def __init__(self, dialler: Session, acceptor: Session) -> None:
        self.dialler = End(dialler)
        self.acceptor = End(acceptor)
        self.now = 0.0

    def pump(self, limit: int = LIMIT, change: Callable[[bytes, bool], bytes] | None = None) -> Pair:
        moved = True
        while moved:
            moved = False
            for sends, takes in ((self.dialler, self.acceptor), (self.acceptor, self.dialler)):
                data = sends.data(limit)
                if change is not None:
                    data = change(data, sends is self.dialler)
                if data:
                    moved = True
                    takes.take(takes.session.receive(data, self.now))
        return self


def open_pair(
    settings: ChannelSettings = ChannelSettings(),  # noqa: B008
    *,
    key: bytes | None = KEY,
    dialled_by: int = 1,
) -> Pair:
    """Makes an open connection between hosts 1 and 2."""
    other = 3 - dialled_by
    pair = Pair(
        session(identity(dialled_by, key=key), other, settings),
        session(identity(other, key=key), 0, settings),
    ).pump()
    assert pair.dialler.opened
    assert pair.acceptor.opened
    return pair


def frames(data: bytes, tag: int = 16) -> list[tuple[Frame, bytes]]:
    """Returns the frames in `data` with the bytes of each; `tag`: the size of a tag."""
    found = []
    position = 0
    while (frame := decode_frame(data, position)) is not None:
        end = position + 20 + (tag if frame.kind > Kind.REFUSE else 0) + frame.length
        found.append((frame, data[position:end]))
        position = end
    assert position == len(data)
    return found
