"""STARE at a host with its sockets and its clock, for the face and the replica controller.

    edge = StareEdge(settings, random, counters, state_of)
    edge.open_network(address, fabric settings, fabric counters)   # omitted on a host without a network
    edge.send = to_controller                                      # answers come by edge.signal(data)
    edge.start(); ...; edge.close()

Packets are sent to and received from groups on UDP port 65432, only on the interface of the fabric's address.
Everything runs in the event loop's thread. Work is done once per turn of the loop, for all input of the turn.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from treecast.middleware.fabric.carriers.ip_multicast import (
    bind_receiver,
    prepare_sender,
    refusal_of,
    refuse_segments,
)
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import Interface, interface_of
from treecast.middleware.fabric.sockets.memberships import Memberships
from treecast.middleware.fabric.sockets.udp import BUFFER_BYTES, SocketAddress, UdpSocket, open_udp
from treecast.middleware.model.counters import FabricCounters, StareCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.wire import stare
from treecast.middleware.wire.stare import StareKind
from treecast.middleware.wire.stare_signals import Opened, Update

from .node import Node
from .output import Output, Packet
from .settings import StareSettings
from .subscriptions import SubState
from .timers import Random
from .wakeups import Wakeups

_log = Log(__name__)

_BURSTS_PER_TURN: Final = 32
OPEN_SECONDS: Final = 20.0  # how long a VNF waits for its id
CONFIRM_SECONDS: Final = 1.0  # how long a subscription waits for switch and controller


class Vnf(Protocol):
    """A VNF of this host, which receives updates."""

    def deliver(self, updates: list[Update]) -> None: ...


Copy = Callable[[bytes, bool], None]  # a packet, and whether it came from the network
StateOf = Callable[[Sequence[str]], Awaitable[int]]


class StareNetwork:
    """The two sockets and the host's group memberships. Raises OSError if a socket cannot be opened.

    The receiver is open only while the host is a member of a group. It is bound to STARE's port, so it gets
    a copy of every datagram that the fabric's own socket on that port receives.
    """

    def __init__(
        self,
        address: tuple[str, int],
        settings: FabricSettings,
        counters: FabricCounters,
        loop: asyncio.AbstractEventLoop,
        readable: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._counters = counters
        self._readable = readable
        self.ipv6 = ":" in address[0]
        self._family = family = socket.AF_INET6 if self.ipv6 else socket.AF_INET
        self.interface: Interface = interface_of(address[0])
        if refusal := refusal_of(self.interface, address[0]):
            raise OSError(refusal)
        self._open("").close()  # reports an occupied port now instead of at the first state
        self._sender = self._open(address[0])
        self._receiver: UdpSocket | None = None
        self._memberships = Memberships(self.interface, family)
        self._addresses: dict[tuple[StareKind, int], SocketAddress] = {}
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.segment_bytes = min(settings.mtu or self.interface.mtu, 65_507) - stare.overhead(ipv6=self.ipv6)

    def _open(self, host: str) -> UdpSocket:
        """Opens the sender if `host` is an address, the receiver if it is empty."""
        settings = self._settings
        sock = open_udp(
            self._family, receive_buffer=settings.receive_buffer, send_buffer=settings.send_buffer
        )
        try:
            if host:
                prepare_sender(sock, self.interface, ttl=settings.ttl, loopback=settings.loopback)
                sock.bind((host, 0))
            else:
                _spare(sock)
                bind_receiver(sock, self.interface)
        except OSError:
            sock.close()
            raise
        return UdpSocket(
            sock,
            self._counters,
            offload=settings.offload,
            queue_bytes=settings.queue_bytes,
            want_write=self._want_write,
        )

    def move(self, host: str) -> None:
        """Sends from another address of the interface from now on. Raises OSError if it is not available."""
        sender = self._open(host)
        self._loop.remove_writer(self._sender.sock.fileno())
        self._sender.close()
        self._sender = sender

    def _want_write(self, wanted: bool) -> None:
        """Watches the sender for room to write. The receiver never writes."""
        if wanted:
            self._loop.add_writer(self._sender.sock.fileno(), self._sender.flush)
        else:
            self._loop.remove_writer(self._sender.sock.fileno())

    def join(self, state: int) -> None:
        """Joins the groups of a state's PUBLISH and SUB-ack packets. Raises OSError if the kernel refuses."""
        if self._receiver is None:
            self._receiver = self._open("")
            self._loop.add_reader(self._receiver.sock.fileno(), self._readable)
        try:
            for kind in (StareKind.PUBLISH, StareKind.SUB_ACK):
                self._memberships.join(stare.group(state, ipv6=self.ipv6, kind=kind))
        finally:
            self._rest()

    def leave(self, state: int) -> None:
        for kind in (StareKind.PUBLISH, StareKind.SUB_ACK):
            self._memberships.leave(stare.group(state, ipv6=self.ipv6, kind=kind))
        self._rest()

    def _rest(self) -> None:
        """Closes the receiver if the host is a member of no group."""
        if self._receiver is not None and not len(self._memberships):
            self._loop.remove_reader(self._receiver.sock.fileno())
            self._receiver.close()
            self._receiver = None

    def send(self, kind: StareKind, state: int, datagrams: list[bytes]) -> None:
        """Sends datagrams to the group of (kind, state)."""
        address = self._addresses.get((kind, state))
        if address is None:
            group = socket.inet_ntop(self._sender.sock.family, stare.group(state, ipv6=self.ipv6, kind=kind))
            address = (group, stare.PORT, 0, self.interface.index) if self.ipv6 else (group, stare.PORT)
            if len(self._addresses) > 100_000:
                self._addresses.clear()
            self._addresses[kind, state] = address
        self._sender.send(datagrams, address)

    def receive(self) -> list[bytes]:
        """Returns received datagrams, at most `_BURSTS_PER_TURN` bursts."""
        found: list[bytes] = []
        receiver = self._receiver
        if receiver is None:
            return found
        try:
            for _ in range(_BURSTS_PER_TURN):
                length, size = receiver.receive(self._buffer)
                for at in range(0, length, size or length or 1):
                    found.append(bytes(self._buffer[at : min(at + (size or length), length)]))
        except BlockingIOError:
            pass
        except OSError as error:
            _log.warning("receiving failed", error=error)
        return found

    @property
    def listening(self) -> bool:
        """Whether the receiver is open."""
        return self._receiver is not None

    @property
    def groups(self) -> int:
        return len(self._memberships)

    @property
    def holders(self) -> int:
        """The number of sockets that hold the memberships. The kernel limits those of one socket."""
        return self._memberships.holders

    def close(self) -> None:
        self._loop.remove_writer(self._sender.sock.fileno())
        self._sender.close()
        self._memberships.close()
        self._rest()


def _spare(sock: socket.socket) -> None:
    """Filters out the fabric's datagrams, which the node would otherwise discard one by one."""
    try:
        refuse_segments(sock)
    except OSError as error:
        _log.warning("kernel cannot filter the fabric's datagrams, which costs CPU time", error=error)


class StareEdge:
    """Implements the face's `Middleware`."""

    def __init__(
        self,
        settings: StareSettings,
        random: Random,
        counters: StareCounters,
        state_of: StateOf,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`state_of` maps the levels of a state's name to its id, or raises TreecastError."""
        self.counters = counters
        self.send: Callable[[bytes], None] = lambda data: None  # a signal to the replica controller
        self.copy: Copy | None = None  # receives the states' packets, for a controller on this host
        self._settings = settings
        self._random = random
        self._clock = clock
        self._state_of = state_of
        self._network: StareNetwork | None = None
        self._vnfs: dict[int, Vnf] = {}
        self._tokens = itertools.count(1)
        self._opening: dict[int, asyncio.Future[int]] = {}
        self._confirming: dict[int, list[asyncio.Future[None]]] = {}
        self._closed = False
        self._wakeups = Wakeups(self._work)
        self.node: Node

    # --- life

    def open_network(
        self,
        address: tuple[str, int],
        settings: FabricSettings,
        counters: FabricCounters,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Opens the sockets in the calling thread's network namespace. Call it before `start`.

        Raises OSError if a socket cannot be opened.
        """
        loop = loop or asyncio.get_running_loop()
        self._network = StareNetwork(address, settings, counters, loop, self._readable)

    def move(self, host: str) -> None:
        """Sends from another address of the interface from now on. Raises OSError if it is not available."""
        if self._network is not None:
            self._network.move(host)

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._wakeups.start(self._loop)
        self.now = self._clock or self._loop.time
        settings = self._settings
        if self._network is not None:
            settings = replace(settings, segment_bytes=self._network.segment_bytes)
        self.node = Node(settings, self._random, self.counters, networked=self._network is not None)

    def close(self) -> None:
        """Closes without waiting. Notifies the switch; a remote controller learns it from the channel."""
        if not self._closed and self._network is not None:
            self._ship(self.node.farewell())
        self._closed = True
        self._wakeups.close()
        for opening in self._opening.values():
            opening.cancel()
        for confirming in itertools.chain(*self._confirming.values()):
            confirming.cancel()
        if self._network is not None:
            self._network.close()

    @property
    def network(self) -> StareNetwork | None:
        """The sockets and memberships; None on a host without a network."""
        return self._network

    @property
    def largest(self) -> int:
        return self.node.largest

    # --- VNFs

    async def open(self, vnf: Vnf) -> int:
        """Opens a VNF and returns its id.

        Raises COORDINATOR_UNAVAILABLE if no id arrives in time, POLICY_VIOLATION if none is left.
        """
        token = next(self._tokens)
        waiting: asyncio.Future[int] = self._loop.create_future()
        self._opening[token] = waiting
        self.node.open(token, self.now())
        self._wakeups.soon()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                id = await waiting
        except TimeoutError:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                "the replica controller gave no VNF id in time: check that it can be reached",
            ) from None
        finally:
            self._opening.pop(token, None)
            self.node.abandon(token, self.now())
        self._vnfs[id] = vnf
        return id

    def close_vnf(self, vnf: int) -> None:
        if self._vnfs.pop(vnf, None) is not None:
            self.node.close(vnf, self.now())
            self._wakeups.soon()

    async def state_of(self, levels: Sequence[str]) -> int:
        """Returns a state's id. Raises INVALID_TOPIC if the name has no levels."""
        if not levels or not any(levels):
            raise TreecastError(Fault.INVALID_TOPIC, "a state's name has levels, joined by /")
        return await self._state_of(levels)

    async def subscribe(self, vnf: int, state: int) -> bool:
        """Subscribes, and returns whether the switch has registered the state.

        Waits until the switch and the controller have answered, at most `CONFIRM_SECONDS`.
        """
        self.node.subscribe(vnf, state, self.now())
        self._wakeups.soon()
        if not self._confirmed(state):
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._confirming.setdefault(state, []).append(waiting)
            try:
                async with asyncio.timeout(CONFIRM_SECONDS):
                    await waiting
            except TimeoutError:
                pass
        return self.node.subscription(state) is SubState.REGISTERED

    def _confirmed(self, state: int) -> bool:
        at_switch = self.node.subscription(state) in (SubState.REGISTERED, SubState.UNANSWERED, None)
        return at_switch and self.node.announced(state)

    def unsubscribe(self, vnf: int, state: int) -> None:
        self.node.unsubscribe(vnf, state, self.now())
        self._wakeups.soon()

    def publish(self, vnf: int, state: int, value: bytes) -> int:
        number = self.node.publish(vnf, state, value, self.now())
        self._wakeups.soon()
        return number

    # --- the replica controller, wherever it is

    def signal(self, data: bytes | memoryview) -> None:
        """Takes a signal from the controller."""
        if not self._closed:
            self.node.signal(data, self.now())
            self._wakeups.soon()

    def controller_changed(self) -> None:
        """Announces everything again, to a new or restarted controller."""
        if not self._closed:
            self.node.controller_changed(self.now())
            self._wakeups.soon()

    def want(self, state: int) -> None:
        """Subscribes this host to a state's packets, for a controller or carrier on it."""
        if not self._closed:
            self.node.want(state, self.now())
            self._wakeups.soon()

    def unwant(self, state: int) -> None:
        if not self._closed:
            self.node.unwant(state, self.now())
            self._wakeups.soon()

    # --- work

    def _readable(self) -> None:
        assert self._network is not None
        now = self.now()
        for data in self._network.receive():
            if self.node.datagram(data, now) and self.copy is not None:
                self.copy(data, True)
        self._work()

    def _work(self) -> None:
        if self._closed:
            return
        self.node.work(self.now())
        output = self.node.take()
        # Before the packets: the switch may send from the moment at which it reads SUB-register.
        self._change(output)
        self._ship(output.packets)
        for signal in output.signals:
            self.send(signal)
        for opened in output.opened:
            self._opened(opened)
        self._deliver(output.deliveries)
        self._confirm()
        self._wakeups.at(self.node.next_deadline(), self.now())

    def _change(self, output: Output) -> None:
        """Joins the groups before SUB-register is sent. Leaves them when the subscription has ended."""
        if self._network is None:
            return
        for change in output.changes:
            try:
                if change.state is None:
                    self._network.leave(change.state_id)
                elif change.state is SubState.REGISTERING:
                    self._network.join(change.state_id)
            except OSError as error:
                refused = self.counters.refused
                refused["NO_MEMBERSHIP"] = count = refused.get("NO_MEMBERSHIP", 0) + 1
                if not count & (count - 1):
                    _log.warning("multicast membership failed", state=change.state_id, error=error)

    def _ship(self, packets: list[Packet]) -> None:
        """Sends consecutive packets of the same kind and state together."""
        at = 0
        while at < len(packets):
            first, start = packets[at], at
            while at < len(packets) and (packets[at].kind, packets[at].state) == (first.kind, first.state):
                at += 1
            datagrams = [packet.data for packet in packets[start:at]]
            if self._network is not None:
                self._network.send(first.kind, first.state, datagrams)
            if self.copy is not None and first.kind is StareKind.PUBLISH:
                for data in datagrams:
                    self.copy(data, False)

    def _opened(self, opened: Opened) -> None:
        waiting = self._opening.get(opened.token)
        # Its VNF waits no longer: the id is given back.
        if waiting is None or waiting.done():
            if opened.vnf:
                self.node.close(opened.vnf, self.now())
        elif opened.vnf:
            waiting.set_result(opened.vnf)
        else:
            waiting.set_exception(TreecastError(Fault.POLICY_VIOLATION, "all VNF ids are in use"))

    def _deliver(self, deliveries: list[tuple[int, Update]]) -> None:
        by_vnf: dict[int, list[Update]] = {}
        for vnf, update in deliveries:
            by_vnf.setdefault(vnf, []).append(update)
        for vnf, updates in by_vnf.items():
            found = self._vnfs.get(vnf)
            if found is not None:
                found.deliver(updates)

    def _confirm(self) -> None:
        for state in [state for state in self._confirming if self._confirmed(state)]:
            for waiting in self._confirming.pop(state):
                if not waiting.done():
                    waiting.set_result(None)
