"""Joined hosts in memory: a coordinator, connections that can be cut, and no clock but the tests' own."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

from treecast.middleware.api.entries import DefinitionEntry
from treecast.middleware.broker.queues import (
    SPOOLS,
    Ask,
    Consumer,
    Defined,
    JoinedQueues,
    MemoryStore,
    MessageQueue,
    Part,
    QueueAnswer,
    QueueCall,
    QueueNotice,
    Recorder,
    RemotePart,
    RemoteQueue,
    Run,
    VirtualHost,
    Write,
    messages,
)
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.state import step
from treecast.middleware.control.values import StateSettings
from treecast.middleware.model.errors import Fault, TreecastError


class Net:
    """Everything that is on its way, in order for each pair of hosts."""

    def __init__(self) -> None:
        self.hosts: dict[int, Host] = {}
        self.coordinator = ClusterState(StateSettings())
        self.down: set[frozenset[int]] = set()
        self.coordinator_away = False
        self._defines: deque[tuple[Host, Sequence[Write]]] = deque()
        self._sent: deque[tuple[int, int, Callable[[], None], Callable[[], None]]] = deque()

    def add(self, number: int) -> Host:
        host = self.hosts[number] = Host(self, number)
        attached = step(self.coordinator, commands.Attach(f"h{number}", f"data of {number}", "h:1", "1"))
        assert attached.answer.host_id == number
        host.session = commands.Session(number, attached.answer.incarnation)
        host.joined.begin(list(self.entries.values()), ())
        for other in self.hosts.values():
            if other is not host:
                other.joined.host_up(number)
        return host

    def linked(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.down

    def cut(self, one: int, other: int) -> None:
        """The connection is lost, and what is on its way."""
        self.down.add(frozenset((one, other)))
        lost = [sent for sent in self._sent if {sent[0], sent[1]} == {one, other}]
        self._sent = deque(sent for sent in self._sent if {sent[0], sent[1]} != {one, other})
        for _, _, _, failed in lost:
            failed()
        self.hosts[one].joined.host_down(other)
        self.hosts[other].joined.host_down(one)

    def mend(self, one: int, other: int) -> None:
        self.down.discard(frozenset((one, other)))
        self.hosts[one].joined.host_up(other)
        self.hosts[other].joined.host_up(one)

    def define(self, host: Host, writes: Sequence[Write]) -> None:
        self._defines.append((host, list(writes)))

    def send(self, origin: int, to: int, what: Callable[[], None], failed: Callable[[], None]) -> None:
        if self.linked(origin, to):
            self._sent.append((origin, to, what, failed))
        else:
            failed()

    def step(self) -> bool:
        """Delivers one thing. Returns whether there was any."""
        for host in self.hosts.values():
            shared = host.joined.definitions
            if host.woken or shared.version > shared.known:  # faces do so after a declaration
                host.woken = False
                host.joined.send()
        if self._sent:
            self._sent.popleft()[2]()
            return True
        if self._defines and not self.coordinator_away:
            self._decide(*self._defines.popleft())
            return True
        return False

    def settle(self) -> None:
        while self.step():
            pass

    @property
    def entries(self) -> dict[str, Defined]:
        """All definitions."""
        found = [change.entry for change in self.coordinator.entries()]
        return {one.key: _defined(one) for one in found if isinstance(one, DefinitionEntry)}

    def _decide(self, host: Host, writes: Sequence[Write]) -> None:
        asked = tuple(commands.DefinitionWrite(one.key, one.value, one.replace) for one in writes)
        decision = step(self.coordinator, commands.PutDefinitions(host.session, asked))
        changes: dict[str, Defined | None] = {}
        for change in decision.changes:
            entry = change.entry
            assert entry is None or isinstance(entry, DefinitionEntry)
            changes[change.key] = None if entry is None else _defined(entry)
        for one in self.hosts.values():
            one.joined.heard(changes)
        host.joined.released()
        host.joined.decided()


def _defined(entry: DefinitionEntry) -> Defined:
    return Defined(entry.key, entry.host_id, entry.value)


class Host:
    """One host, which is also its own `Reach`."""

    def __init__(self, net: Net, number: int) -> None:
        self.number = number
        self.session = commands.Session(0, 0)
        self.net = net
        self.store = MemoryStore()
        self.vhosts: dict[str, VirtualHost] = {}
        self.vhost = self.add_vhost("/")
        self.spools = VirtualHost(SPOOLS, self.store, Recorder())
        self.taken: dict[int, tuple[int, int]] = {}
        self.woken = False
        self.refuses = False  # messages, as its queues are not open
        self.impatient = False  # gives calls up after they were handled, before their answers come
        self.joined = JoinedQueues(self, self.spools, self.taken, self, self._wake)
        for vhost in self.vhosts.values():
            vhost.departures = self.joined

    def _wake(self) -> None:
        self.woken = True

    def add_vhost(self, name: str) -> VirtualHost:
        vhost = self.vhosts[name] = VirtualHost(name, self.store, Recorder())
        if hasattr(self, "joined"):
            vhost.departures = self.joined
        return vhost

    def remove_vhost(self, name: str) -> None:
        vhost = self.vhosts.pop(name)
        vhost.ledger.sharing.deleted("vhost", b"")
        vhost.clear()

    # --- as `Reach`

    @property
    def host(self) -> int:
        return self.number

    @property
    def run(self) -> int:
        return 1

    def join(self, queues: JoinedQueues) -> None: ...

    async def leave(self, seconds: float) -> None: ...

    def name(self, host: int) -> str:
        return f"h{host}"

    def up(self) -> Collection[int]:
        return [one for one in self.net.hosts if one != self.number and self.net.linked(one, self.number)]

    def hosts(self) -> Collection[int]:
        return [one for one in self.net.hosts if one != self.number]

    async def manage(self, host: int, request: bytes) -> bytes:
        raise TreecastError(Fault.NOT_SUPPORTED)

    async def known(self, version: int) -> None: ...

    def serve(self, managed: Callable[[int, bytes], Awaitable[bytes]]) -> None: ...

    def define(self, writes: Sequence[Write]) -> None:
        self.net.define(self, writes)

    def call(self, host: int, number: int, call: QueueCall) -> None:
        def handle() -> None:
            answer, body, _ = self.net.hosts[host].joined.called(self.number, call)
            answered = lambda: self.joined.answered(number, answer, body)  # noqa: E731
            self.net.send(host, self.number, failed if self.impatient else answered, failed)

        def failed() -> None:
            self.joined.answered(number, None, b"")

        self.net.send(self.number, host, handle, failed)

    def tell(self, host: int, notice: QueueNotice, body: bytes = b"") -> None:
        told = self.net.hosts[host].joined.told
        self.net.send(self.number, host, lambda: told(self.number, notice, body), lambda: None)

    def carry(self, host: int, number: int, body: bytes) -> None:
        def handle() -> None:
            home = self.net.hosts[host]
            try:
                if home.refuses:
                    raise TreecastError(Fault.NOT_SUPPORTED, "not open yet")
                home.joined.arrived(self.number, body)
            except TreecastError:
                failed()
                return
            answered = lambda: self.joined.carried(host, number, True)  # noqa: E731
            self.net.send(host, self.number, answered, failed)

        def failed() -> None:
            self.joined.carried(host, number, False)

        self.net.send(self.number, host, handle, failed)

    # --- what tests do

    def publish(self, run: Run) -> bool:
        return self.vhost.publish(run, 0.0)[0]

    def ask(self, name: bytes, ask: Ask, **more: object) -> Asked:
        queue = self.vhost.queues[name]
        assert isinstance(queue, RemoteQueue)
        asked = Asked()
        call = QueueCall(ask, "/", name, **more)  # type: ignore[arg-type]
        self.joined.ask(queue, call, asked)
        self.net.settle()
        return asked

    def consume(self, name: bytes, room: int = 1000, no_ack: bool = False) -> Taker:
        """A consumer of a queue, on whichever host the queue is."""
        queue = self.vhost.queues[name]
        taker = Taker(queue, room, no_ack)
        if isinstance(queue, RemoteQueue):
            taker.number = self.joined.new_number()
            asked = self.ask(name, Ask.CONSUME, consumer=taker.number)
            assert asked.answer is not None
            assert not asked.answer.reason, asked.answer.detail
        self.vhost.consume(queue, taker, 0.0)
        self.net.settle()
        return taker


class Asked:
    def __init__(self) -> None:
        self.answer: QueueAnswer | None = None
        self.parts: list[RemotePart] = []

    def answered(self, answer: QueueAnswer, parts: list[RemotePart], now: float) -> None:
        self.answer, self.parts = answer, parts


class Taker(Consumer):
    """A consumer that keeps what it gets."""

    def __init__(self, queue: MessageQueue, prefetch: int, no_ack: bool) -> None:
        super().__init__(b"taker", self, no_ack)
        self.queue = queue
        self.prefetch = prefetch
        self.parts: list[Part] = []
        self.bodies: list[bytes] = []
        self.runs: list[Run] = []
        self.gone = False

    @property
    def room(self) -> int:
        return max(self.prefetch - self.unsettled, 0)

    def take(self, part: Part) -> None:
        self.parts.append(part)
        self.bodies += [body for _, body in messages(part.data())]
        assert part.run is not None
        self.runs.append(part.run)

    def cancelled(self) -> None:
        self.gone = True
