"""Messages for queues of other hosts wait in one spool for each home until the home has stored them.

A spool is a queue of this host, in the same log as all others: a message for another host is stored in the
same block as for queues here, whatever its amount, and a publisher's confirm waits for the disk here only.
The home takes messages in order, each once: every entry has a number that only rises (the run of this host,
and a count in it), and the home stores the highest number taken in the same block as the messages. Transient
messages alone are delivered before that number is written: a home that is killed in between gets them again.

A spool's message is one run for some queues of one home. Its properties are a `Carried` in msgpack, its body
the run (`message.encode_run`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

from .any_queue import AnyQueue
from .consumers import Consumer
from .entries import Declared
from .message import HEAD, Part, Run, encode_run, message, received_run
from .reach import Reach
from .refusals import text
from .streams import StreamQueue
from .virtual_host import VirtualHost

SPOOLS: Final = "\0hosts"  # the name of the virtual host of spools, which no client can open
TAKEN: Final = "taken"  # the kind of definition that holds the highest number taken from a host
_FLIGHT_BYTES: Final = 4 << 20  # sent to one home and not answered yet
_CALL_BYTES: Final = 1 << 20
_RETRY: Final = 0.5  # seconds after a failed call


class Carried(Struct, frozen=True, array_like=True):
    """The head of a run for queues of one home. `run`, `number`: see above. `at`: the time of day when it was
    published, from which its expiration counts."""

    run: int
    number: int
    vhost: str
    queues: list[bytes]
    at: float


_write_head: Final = msgspec.msgpack.Encoder().encode
_read_head: Final = msgspec.msgpack.Decoder(Carried).decode


def taken_from(declared: Iterable[Declared]) -> dict[int, tuple[int, int]]:
    """Returns the highest numbers taken from other hosts, as an earlier process has recorded them."""
    found: dict[int, tuple[int, int]] = {}
    for one in declared:
        if (one.vhost, one.kind) == (SPOOLS, TAKEN):
            run, number = one.definition["run"], one.definition["number"]
            assert isinstance(run, int)
            assert isinstance(number, int)
            found[int(one.name)] = run, number
    return found


class _Flight:
    """The entries of one call."""

    def __init__(self, parts: list[Part], size: int) -> None:
        self.parts = parts
        self.size = size


class Spool(Consumer):
    """The spool of one home, and its only consumer."""

    def __init__(self, host: int, queue: AnyQueue, reach: Reach) -> None:
        super().__init__(b"home")
        self.host = host
        self.queue = queue
        self.up = False
        self.retry_at = 0.0
        self._reach = reach
        self._flights: dict[int, _Flight] = {}
        self._size = 0  # bytes in flight
        self._parts: list[Part] = []
        self._pieces: list[bytes] = []
        self._piece_bytes = 0

    @property
    def room(self) -> int:
        return 1 if self.up and self._size + self._piece_bytes < _FLIGHT_BYTES else 0

    def take(self, part: Part) -> None:
        data = part.data()
        self._parts.append(part)
        self._pieces.append(data)
        self._piece_bytes += len(data)

    def send(self, number: int) -> bool:
        """Sends what was taken, once the call before is answered: a home that refused one call must not take
        the next, as it would then pass over the entries of the first. Returns whether it sent anything."""
        if not self._parts or self._flights:
            return False
        body = b"".join(self._pieces)
        self._flights[number] = _Flight(self._parts, len(body))
        self._size += len(body)
        self._parts, self._pieces, self._piece_bytes = [], [], 0
        self._reach.carry(self.host, number, body)
        return True

    def carried(self, number: int, stored: bool, now: float) -> None:
        """The home has answered a call, or it has failed: then all that is not answered is sent again."""
        flight = self._flights.pop(number, None)
        if flight is None:
            return
        self._size -= flight.size
        if not stored:
            self._return(flight.parts, now)
            self.back(now)
            self.up = False
            self.retry_at = now + _RETRY
            return
        for part in flight.parts:
            self.queue.settle(part, 0, part.count, self)
        self.queue.pump(now)

    def back(self, now: float) -> None:
        """Returns all that is not answered to the spool."""
        flights, self._flights, self._size = self._flights, {}, 0
        for flight in flights.values():
            self._return(flight.parts, now)
        self._return(self._parts, now)
        self._parts, self._pieces, self._piece_bytes = [], [], 0

    def _return(self, parts: list[Part], now: float) -> None:
        for part in parts:
            self.queue.requeue(part, 0, part.count, self, now, failed=False)


class Spools:
    """All spools of this host. `vhost` has their queues."""

    def __init__(self, reach: Reach, vhost: VirtualHost) -> None:
        self._reach = reach
        self._vhost = vhost
        self._spools: dict[int, Spool] = {}
        self._targets: dict[int, list[bytes]] = {}  # of the run that is being published
        self._durable = False
        self._count = 0
        self._calls = 0
        for name in list(vhost.queues):
            self._of(int(name))

    @property
    def waiting(self) -> int:
        """The number of runs that a home has not stored yet."""
        return sum(spool.queue.ready + spool.queue.unsettled for spool in self._spools.values())

    def _of(self, host: int) -> Spool:
        found = self._spools.get(host)
        if found is None:
            queue = self._vhost.queue_definitions.declare(str(host).encode())
            found = self._spools[host] = Spool(host, queue, self._reach)
            found.up = host in self._reach.up()
            queue.consumers.add(found)
        return found

    # --- publishing

    def add(self, home: int, queue: AnyQueue) -> None:
        """Adds a queue to those of the current run."""
        self._targets.setdefault(home, []).append(queue.name)
        self._durable = self._durable or queue.durable

    def seal(self, vhost: str, run: Run, wall: float, now: float) -> bool:
        """Puts the run into the spools of all homes added. Returns whether that promises something."""
        if not self._targets:
            return False
        targets, self._targets = self._targets, {}
        persistent, self._durable = run.persistent and self._durable, False
        body = encode_run(run)
        for home, queues in targets.items():
            self._count += 1
            head = _write_head(Carried(self._reach.run, self._count, vhost, queues, wall))
            entry = Run(b"", b"", message(head, body), 1, len(body), persistent)
            self._of(home).queue.publish(entry, now)
        return persistent

    # --- sending

    def send(self) -> None:
        """Sends what the spools have given. Called after the store was written."""
        for spool in self._spools.values():
            if spool.send(self._calls + 1):
                self._calls += 1

    def carried(self, host: int, number: int, stored: bool, now: float) -> None:
        self._of(host).carried(number, stored, now)

    def host_up(self, host: int, now: float) -> None:
        if host in self._spools:
            spool = self._spools[host]
            spool.up = True
            spool.queue.pump(now)

    def host_down(self, host: int, now: float) -> None:
        if host in self._spools:
            spool = self._spools[host]
            spool.up = False
            spool.retry_at = 0.0
            spool.back(now)

    def tick(self, now: float) -> bool:
        """Tries failed calls again. Returns whether there is something to send."""
        again = False
        for host, spool in self._spools.items():
            if 0.0 < spool.retry_at <= now:
                spool.retry_at = 0.0
                if host in self._reach.up():
                    self.host_up(host, now)
                    again = True
        return again


class Arrivals:
    """Messages of other hosts for queues of this host. `vhost` records the highest numbers taken."""

    def __init__(self, vhost: VirtualHost, taken: dict[int, tuple[int, int]]) -> None:
        self._recorder = vhost.ledger.recorder
        self._taken = taken
        self.dropped = 0  # messages for queues that are gone
        self.repeated = 0  # runs that had come before

    def take(self, host: int, body: bytes, vhosts: dict[str, VirtualHost], wall: float, now: float) -> bool:
        """Publishes what is new. Returns whether that promises something: transient messages may be lost.
        Raises STORAGE if the bytes are wrong or the disk refuses to read, or TIMED_OUT if a stream takes
        nothing at present, after what comes before. The origin then sends the rest again."""
        before = self._taken.get(host, (0, 0))
        highest = before
        promises = False
        try:
            for carried, run in entries_of(body):
                number = (carried.run, carried.number)
                promises = promises or run.persistent  # also if it came before, and was not stored then
                if number <= highest:
                    self.repeated += 1
                    continue
                self._may_take(carried, vhosts)
                highest = number
                self._publish(carried, run, vhosts, wall, now)
        finally:
            if highest != before:
                self._taken[host] = highest
                said = {"run": highest[0], "number": highest[1]}
                self._recorder.noted(TAKEN, str(host).encode(), said)
        return promises

    def _may_take(self, carried: Carried, vhosts: dict[str, VirtualHost]) -> None:
        vhost = vhosts.get(carried.vhost)
        for name in carried.queues:
            queue = vhost.queues.get(name) if vhost is not None else None
            if isinstance(queue, StreamQueue) and queue.full:
                raise TreecastError(Fault.TIMED_OUT, f"stream '{text(name)}' takes no more at present")

    def _publish(
        self, carried: Carried, run: Run, vhosts: dict[str, VirtualHost], wall: float, now: float
    ) -> None:
        """Publishes to all the queues, also if one of them cannot read its messages: the run counts as taken.
        Raises that one's STORAGE."""
        vhost = vhosts.get(carried.vhost)
        if run.expiration >= 0:
            run.expiration = max(run.expiration - max(int((wall - carried.at) * 1000), 0), 0)
        error: TreecastError | None = None
        for name in carried.queues:
            queue = vhost.queues.get(name) if vhost is not None else None
            if vhost is None or queue is None:
                self.dropped += run.count
                continue
            try:
                queue.publish(run, now)  # it may have moved to another host meanwhile
            except TreecastError as failed:
                error = failed
            vhost.watch(queue)
        if vhost is not None:
            vhost.follow_up(run, now)
        if error is not None:
            raise error


def entries_of(data: bytes) -> list[tuple[Carried, Run]]:
    """Returns the entries of a call, which are messages in the layout of `message`. Raises STORAGE."""
    found, at = [], 0
    while at < len(data):
        middle = at + HEAD + int.from_bytes(data[at : at + 4], "big")
        end = middle + int.from_bytes(data[at + 4 : at + HEAD], "big")
        if end > len(data) or middle > end:
            raise TreecastError(Fault.STORAGE, "an entry for queues is cut off")
        try:
            head = _read_head(data[at + HEAD : middle])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TreecastError(
                Fault.STORAGE, f"the head of an entry for queues is wrong: {error}"
            ) from error
        found.append((head, received_run(data[middle:end])))
        at = end
    return found
