"""Publishers with confirms, and a consumer that acknowledges most messages and rejects some. All reconnect.

A message is `publisher number attempt`. An unconfirmed message is published again as a new attempt. So a
queue may hold each attempt at most once, and must hold each confirmed attempt.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from pamqp import base, commands

from .link import Broken, Delivered, Link, publish

WINDOW = 200
REJECTED = 7  # the consumer rejects every seventh message
EXCHANGE, WORK, KEEP, DEAD = "load", "work", "keep", "dead"
Address = Callable[[], tuple[str, int]]

_Basic, _Queue, _Exchange = commands.Basic, commands.Queue, commands.Exchange


def declare(link: Link) -> None:
    """Declares the exchanges and queues of the load; repeating it is no error."""
    link.ask(_Exchange.Declare(exchange=EXCHANGE, exchange_type="fanout", durable=True), _Exchange.DeclareOk)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    for name, arguments in ((WORK, dead), (KEEP, {}), (DEAD, {})):
        link.ask(_Queue.Declare(queue=name, durable=True, arguments=dict(arguments)), _Queue.DeclareOk)
    for name in (WORK, KEEP):
        link.ask(_Queue.Bind(queue=name, exchange=EXCHANGE, routing_key=""), _Queue.BindOk)


def is_rejected(body: bytes) -> bool:
    return int(body.split(b" ")[1]) % REJECTED == 0


def ready(address: tuple[str, int], queue: str) -> int:
    """Returns the number of ready messages of a queue."""
    link = Link(address)
    count = link.ask(_Queue.Declare(queue=queue, passive=True), _Queue.DeclareOk).message_count
    link.leave()
    return count or 0


def drain(address: tuple[str, int], queue: str, patience: float) -> list[Delivered]:
    """Reads and settles all messages of a queue."""
    link = Link(address)
    count = link.ask(_Queue.Declare(queue=queue, passive=True), _Queue.DeclareOk).message_count or 0
    found: list[Delivered] = []
    link.ask(_Basic.Consume(queue=queue, consumer_tag="drain"), _Basic.ConsumeOk)
    deadline = time.monotonic() + patience
    while len(found) < count and time.monotonic() < deadline:
        for one in link.receive(0.1):
            if isinstance(one, Delivered):
                found.append(one)
    if found:
        link.send(_Basic.Ack(found[-1].tag, True))
    link.leave()
    return found


class Worker(threading.Thread):
    """A thread that reconnects after each disconnection. All workers share `problems`."""

    def __init__(self, name: str, address: Address, problems: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.problems = problems
        self.up = threading.Event()  # set while the daemon runs or is about to
        self.ended = False
        self._address = address
        self.link: Link | None = None

    def run(self) -> None:
        while not self.ended:
            if not self.up.wait(0.1):
                continue
            try:
                if self.link is None:
                    self.link = Link(self._address())
                    self.resume(self.link)
                self.step(self.link)
            except OSError:
                self.drop()
                time.sleep(0.02)
            except Exception as error:
                self.problems.append(f"{self.name}: {type(error).__name__}: {error}")
                return

    def drop(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close()

    def resume(self, link: Link) -> None:
        raise NotImplementedError

    def step(self, link: Link) -> None:
        raise NotImplementedError


class Publisher(Worker):
    """`confirmed`: attempts that the daemon confirmed; `pending`: attempts without a confirm yet, by tag."""

    def __init__(self, number: int, address: Address, problems: list[str]) -> None:
        super().__init__(f"pub{number}", address, problems)
        self.number = number
        self.gate = threading.Event()  # set while new messages may be sent
        self.sent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.pending: dict[int, tuple[int, int]] = {}  # (message, attempt)
        self._next = 0
        self._tag = 0

    def _body(self, message: int, attempt: int) -> bytes:
        return b"%d %d %d " % (self.number, message, attempt) + b"." * (message * 13 % 300)

    def resume(self, link: Link) -> None:
        """Publishes unconfirmed messages again."""
        declare(link)
        link.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
        again = [(message, attempt + 1) for message, attempt in self.pending.values()]
        self.pending = {}
        self._tag = 0
        self._publish(link, again)

    def _publish(self, link: Link, messages: list[tuple[int, int]]) -> None:
        data = []
        for message, attempt in messages:
            self._tag += 1
            self.pending[self._tag] = message, attempt
            body = self._body(message, attempt)
            self.sent.add(body)
            data.append(publish(EXCHANGE, "", body))
        if data:
            link.send_bytes(b"".join(data))

    def step(self, link: Link) -> None:
        fresh = []
        while self.gate.is_set() and len(self.pending) + len(fresh) < WINDOW:
            fresh.append((self._next, 0))
            self._next += 1
        self._publish(link, fresh)
        for one in link.receive(0.02):
            self._confirm(one)

    def _confirm(self, one: base.Frame | Delivered) -> None:
        if not isinstance(one, _Basic.Ack):
            raise Broken(f"unexpected {one}")
        tag = one.delivery_tag or 0
        for each in [known for known in self.pending if known == tag or (one.multiple and known < tag)]:
            self.confirmed.add(self._body(*self.pending.pop(each)))


class Consumer(Worker):
    """Settles all messages, and disconnects in order when told to, so that its last settlements count.

    `seen`: number of deliveries of each message.
    """

    def __init__(self, address: Address, problems: list[str]) -> None:
        super().__init__("consumer", address, problems)
        self.seen: Counter[bytes] = Counter()
        self.leaving = threading.Event()
        self.left = threading.Event()

    def pause(self, patience: float) -> bool:
        """Returns whether the consumer has disconnected."""
        self.left.clear()
        self.leaving.set()
        return self.left.wait(patience)

    def go_on(self) -> None:
        self.leaving.clear()

    def resume(self, link: Link) -> None:
        declare(link)
        link.ask(_Basic.Qos(prefetch_count=50), _Basic.QosOk)
        link.ask(_Basic.Consume(queue=WORK, consumer_tag="c"), _Basic.ConsumeOk)

    def step(self, link: Link) -> None:
        if self.leaving.is_set():
            if not self.left.is_set():
                link.leave()
                self.left.set()
            time.sleep(0.02)
            return
        if self.left.is_set():  # the link was closed on purpose
            self.left.clear()
            raise Broken("goes on with another")
        answers: list[base.Frame] = []
        for one in link.receive(0.02):
            if not isinstance(one, Delivered):
                raise Broken(f"unexpected {one}")
            self.seen[one.body] += 1
            if self.seen[one.body] > 1 and not one.redelivered:
                self.problems.append(f"{one.body[:20]!r} came again and was not said to be redelivered")
            answers.append(_Basic.Reject(one.tag, False) if is_rejected(one.body) else _Basic.Ack(one.tag))
        if answers:
            link.send(*answers)
