"""A host's AMQP face in memory: no sockets, and only the tests move the clock. Clients speak by pamqp."""

from __future__ import annotations

import random
from typing import TypeVar

from pamqp import base, body, commands, frame, header
from tests.unit.script import Like, Script

from treecast.middleware.broker.queues import LocalVirtualHosts, MemoryStore, QueueSettings, Recorder
from treecast.shims.amqp import AmqpHost, AmqpSettings, OpenAccess, Session
from treecast.shims.amqp.codec import PROTOCOL_HEADER
from treecast.shims.amqp.dialect import AmqpHeaders
from treecast.shims.amqp.session_host import Access
from treecast.shims.amqp.session_waiting import Answered
from treecast.shims.log_ins import Outcome

Basic = commands.Basic
Queue = commands.Queue
Connection = commands.Connection
Channel = commands.Channel
M = TypeVar("M", bound=base.Frame)

CAPABLE = {"consumer_cancel_notify": True, "connection.blocked": True, "authentication_failure_close": True}


def frames_of(data: bytes) -> list[tuple[int, object]]:
    """Returns (channel, frame) of all frames in `data`, which has to end with a frame."""
    found = []
    while data:
        used, channel, one = frame.unmarshal(data)
        found.append((channel, one))
        data = data[used:]
    return found


def content(channel: int, payload: bytes, piece: int = 1 << 17, **properties: object) -> bytes:
    """Encodes the content header and body frames."""
    given = Basic.Properties(**properties)  # type: ignore[arg-type]
    out = frame.marshal(header.ContentHeader(0, len(payload), given), channel)
    for at in range(0, len(payload), piece):
        out += frame.marshal(body.ContentBody(payload[at : at + piece]), channel)
    return out


def publish(
    key: str,
    payload: bytes,
    exchange: str = "",
    channel: int = 1,
    mandatory: bool = False,
    piece: int = 1 << 17,
    **properties: object,
) -> bytes:
    method = Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
    return frame.marshal(method, channel) + content(channel, payload, piece, **properties)


class Message:
    """A delivered, fetched or returned message: the method before it, properties and body."""

    def __init__(self, method: base.Frame, properties: Basic.Properties) -> None:
        self.method = method
        self.properties = properties
        self.body = b""
        self.pieces: list[int] = []

    def __getattr__(self, name: str) -> object:
        """The fields of the method."""
        return getattr(self.method, name)

    @property
    def headers(self) -> dict[str, object]:
        return dict(self.properties.headers or {})


class Client(Script):
    """One connection to a `MemoryHost`, and the edge of its session. Bytes are sent at once; `got()` returns
    the methods since its last call.
    """

    product = "tests"

    def __init__(self, host: MemoryHost) -> None:
        self.host = host
        self.session = Session(host.amqp, self, host.now)
        self.session.state.local = True

    def woken(self) -> None:
        self.host.wake(self.session)

    def answered(self, found: Answered, now: float) -> None:
        self.session.answered(found, now)

    def checked(self, outcome: Outcome) -> None:
        self.session.checked(outcome, self.host.now)

    def go_on(self, now: float) -> None:
        self.session.go_on(now)

    def send_bytes(self, data: bytes) -> None:
        self.session.receive(data, self.host.now)

    def send(self, *methods: base.Frame, channel: int = 1) -> None:
        self.send_bytes(b"".join(frame.marshal(method, channel) for method in methods))

    def give(self, *given: base.Frame | bytes) -> None:
        """Methods of the connection go to channel 0, others to channel 1."""
        self.send_bytes(
            b"".join(
                [
                    one
                    if isinstance(one, bytes)
                    else frame.marshal(one, not one.name.startswith("Connection"))
                    for one in given
                ]
            )
        )

    def take(self) -> list[object]:
        return self.got()

    def got_bytes(self) -> bytes:
        data = self.session.output.take()
        if data:
            self.session.heartbeats.last_out = self.host.now
        return data

    def got_frames(self) -> list[tuple[int, object]]:
        return frames_of(self.got_bytes())

    def got(self) -> list[object]:
        """Returns methods; a method with content is a `Message`."""
        found: list[object] = []
        for _, one in self.got_frames():
            if isinstance(one, header.ContentHeader):
                assert isinstance(found[-1], base.Frame)
                found[-1] = Message(found[-1], one.properties)
            elif isinstance(one, body.ContentBody):
                assert isinstance(found[-1], Message)
                found[-1].body += one.value
                found[-1].pieces.append(len(one.value))
            else:
                found.append(one)
        return found

    def ask(self, method: base.Frame, kind: type[M], channel: int = 1) -> M:
        """Sends a method and returns the answer, which has to be a single `kind`."""
        self.send(method, channel=channel)
        (answer,) = self.got()
        assert isinstance(answer, kind), describe(answer)
        return answer

    def messages(self) -> list[Message]:
        found = self.got()
        assert all(isinstance(one, Message) for one in found), [describe(one) for one in found]
        return found  # type: ignore[return-value]

    def bodies(self) -> list[bytes]:
        return [one.body for one in self.messages()]

    # --- shortcuts

    def log_in(self, user: str = "guest", password: str = "guest", **capabilities: object) -> None:
        self.send_bytes(PROTOCOL_HEADER)
        (start,) = self.got()
        assert isinstance(start, Connection.Start)
        properties = {"capabilities": {**CAPABLE, **capabilities}, "product": self.product}
        response = f"\0{user}\0{password}"
        self.send(Connection.StartOk(properties, "PLAIN", response), channel=0)

    def open(self, *channels: int, frame_max: int = 131072, heartbeat: int = 0) -> Client:
        """Connects and opens channels."""
        self.log_in()
        (tune,) = self.got()
        assert isinstance(tune, Connection.Tune), describe(tune)
        self.send(Connection.TuneOk(tune.channel_max, frame_max, heartbeat), Connection.Open("/"), channel=0)
        (opened,) = self.got()
        assert isinstance(opened, Connection.OpenOk), describe(opened)
        for channel in channels or (1,):
            self.ask(Channel.Open(), Channel.OpenOk, channel)
        return self

    def declare(self, name: str = "q", *, durable: bool = True, **arguments: object) -> str:
        asked = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        method = Queue.Declare(queue=name, durable=durable, arguments=asked)  # type: ignore[arg-type]
        return self.ask(method, Queue.DeclareOk).queue

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        self.ask(Queue.Bind(queue=queue, exchange=exchange, routing_key=key), Queue.BindOk)

    def publish(self, key: str, *payloads: bytes, **options: object) -> None:
        self.send_bytes(b"".join(publish(key, one, **options) for one in payloads))  # type: ignore[arg-type]

    def consume(self, queue: str = "q", tag: str = "t", channel: int = 1, **options: object) -> list[object]:
        """Starts a consumer. Returns everything after its ConsumeOk."""
        method = Basic.Consume(queue=queue, consumer_tag=tag, **options)  # type: ignore[arg-type]
        self.send(method, channel=channel)
        answer, *rest = self.got()
        assert isinstance(answer, Basic.ConsumeOk), describe(answer)
        assert answer.consumer_tag == tag
        return rest

    def ask_for_one(self, queue: str = "q") -> Message:
        self.send(Basic.Get(queue=queue))
        (found,) = self.messages()
        return found

    def count(self, queue: str = "q") -> int:
        return self.ask(Queue.Declare(queue=queue, passive=True), Queue.DeclareOk).message_count

    def drop(self) -> None:
        """Breaks the network connection."""
        self.session.lost(self.host.now)

    def closed(self) -> tuple[int, int]:
        """Returns (channel, reply code) of a close, which has to be the only frame."""
        ((channel, one),) = self.got_frames()
        assert isinstance(one, Channel.Close | Connection.Close), describe(one)
        assert isinstance(one, Connection.Close) == (channel == 0)
        return channel, one.reply_code


def came(*bodies: bytes, **fields: object) -> list[Like]:
    """Messages with these bodies, and with these fields of their methods."""
    return [Like(Message, body=one, **fields) for one in bodies]


def describe(one: object) -> str:
    return f"{one!r} {dict(one) if isinstance(one, base.Frame) else ''}"


class MemoryHost:
    """The face without its edge."""

    def __init__(
        self,
        settings: AmqpSettings | None = None,
        access: Access | None = None,
        queues: QueueSettings | None = None,
    ) -> None:
        self.now = 1000.0
        self.woken: list[Session] = []
        self.store = MemoryStore()
        self.queues = LocalVirtualHosts(self.store, Recorder(), queues or QueueSettings())
        self.queues.use(AmqpHeaders(), None)
        self.amqp = AmqpHost(
            settings or AmqpSettings(), access or OpenAccess(), self.queues, random.Random(7)
        )
        self.vhost.wall = 1_700_000_000.0

    @property
    def vhost(self):  # type: ignore[no-untyped-def]
        return self.amqp.vhosts["/"]

    def wake(self, session: Session) -> None:
        self.woken.append(session)

    def client(self, *channels: int, **options: int) -> Client:
        return Client(self).open(*channels, **options)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.vhost.wall += seconds
        self.vhost.tick(self.now)
