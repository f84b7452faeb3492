"""A virtual host with shortcuts for tests."""

from __future__ import annotations

from collections.abc import Mapping

from treecast.middleware.broker.queues import (
    Consumer,
    Destination,
    MemoryStore,
    MessageQueue,
    Part,
    QueueSettings,
    Recorder,
    Run,
    RunStore,
    VirtualHost,
    message,
    messages,
)
from treecast.middleware.model.records import Record


def run(
    *bodies: bytes,
    exchange: str = "",
    key: str = "q",
    priority: int = -1,
    expiration: int = -1,
    persistent: bool = True,
    copies: tuple[bytes, ...] = (),
) -> Run:
    data = b"".join(message(b"", body) for body in bodies)
    return Run(
        exchange.encode(),
        key.encode(),
        data,
        len(bodies),
        sum(map(len, bodies)),
        persistent,
        priority,
        expiration,
        copies,
    )


def bodies_of(part: Part) -> list[bytes]:
    return [body for _, body in messages(part.data())]


class Taker(Consumer):
    """Takes as many messages as it has credit for, and keeps them."""

    def __init__(self, tag: str, credit: int = 1 << 30, **options: object) -> None:
        super().__init__(tag.encode(), **options)  # type: ignore[arg-type]
        self.credit = credit
        self.got: list[bytes] = []
        self.parts: list[Part] = []
        self.ended = False

    @property
    def room(self) -> int:
        return self.credit

    def take(self, part: Part) -> None:
        assert part.count <= self.credit
        self.credit -= part.count
        self.got += bodies_of(part)
        self.parts.append(part)

    def cancelled(self) -> None:
        self.ended = True


class Headers:
    """Looks up the headers of a test's messages in `of`, by body."""

    def __init__(self, of: Mapping[bytes, Mapping[str, object]]) -> None:
        self.of = of

    def headers(self, run: Run) -> Mapping[str, object]:
        return self.of.get(messages(run.data)[0][1], {})

    def record(self, run: Run) -> Record:
        ((_, body),) = messages(run.data)
        return Record(None, body, tuple((name, str(one).encode()) for name, one in self.headers(run).items()))

    def topic(self, key: bytes) -> str:
        return key.decode()


class Host:
    """A virtual host whose clock moves by `wait` only."""

    def __init__(
        self,
        settings: QueueSettings | None = None,
        store: RunStore | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.memory = MemoryStore()
        self.vhost = VirtualHost(
            "/", store or self.memory, recorder or Recorder(), settings or QueueSettings()
        )
        self.now = 1000.0
        self.vhost.wall = 1_700_000_000.0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.vhost.wall += seconds
        self.vhost.tick(self.now)

    def queue(self, name: str = "q", **arguments: object) -> MessageQueue:
        asked = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        return self.vhost.queue_definitions.declare(name.encode(), arguments=asked, now=self.now)

    def bind(self, source: str, queue: str, key: str = "", **arguments: object) -> None:
        asked = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.vhost.bindings.bind(source.encode(), Destination(queue.encode(), False), key.encode(), asked)

    def publish(self, *bodies: bytes, **options: object) -> tuple[bool, int]:
        """Returns (whether a queue matched, how many messages all queues have taken)."""
        routed, refused = self.vhost.publish(run(*bodies, **options), self.now)  # type: ignore[arg-type]
        return routed, len(bodies) - len(refused)

    def get(self, queue: MessageQueue) -> Part | None:
        part = queue.get(self.now, no_ack=False)
        self.vhost.touched(queue, self.now)
        return part

    def drained(self, name: str) -> list[bytes]:
        """Empties a queue and returns the bodies."""
        queue = self.vhost.router.queue(name.encode())
        found = []
        while (part := queue.get(self.now, no_ack=True)) is not None:
            found += bodies_of(part)
        return found
