"""The channels of one host: a connection to each other host, and the calls made over them.

    channels = Channels(host_id, incarnation, cluster_id, key, ChannelSettings(), counters, rng, handler)
    address = await channels.start(Address("10.0.0.1", 7672))
    channels.set_host(2, Address("10.0.0.2", 7672))
    answer = await channels.call(2, method, b"head", body, timeout=5.0)

Use it on one event loop. A host handles calls of one group (`method // 20`) in the order of the calls;
answers may overtake each other.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from asyncio import Future
from collections.abc import Callable
from functools import partial
from random import Random

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.tls_listener import Arrival, TlsListener
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import ChannelCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.passes import Passes
from treecast.middleware.model.visitors import Visitors

from .advice import next_step
from .codec import MAX_CALL, NONCE_SIZE, Kind, Problem
from .deadlines import Deadlines, Patience
from .dispatch import Handler
from .greeting import Identity
from .incoming import Ended, Proven, Scratch
from .link import Link
from .outcomes import Outcomes, Then, number_of, resolve, tell, why
from .outgoing import Call
from .peers import Peer
from .ports import connect, listening
from .protocol import LinkProtocol
from .session import Session
from .settings import MAX_METHOD, ChannelSettings
from .tls import ChannelTls, strangers
from .values import Answer, PeerStatus

_log = Log("treecast.channel")

_CLOSE_GRACE = 1.0  # s
# problems that are not a protocol error
_TOO_SLOW = {Problem.SILENT, Problem.HANDSHAKE}
# problems that a new connection would meet again, because the hosts do not accept each other
_NOT_ACCEPTED = {
    Problem.VERSION,
    Problem.CLUSTER,
    Problem.AUTHENTICATION,
    Problem.PROOF,
    Problem.CERTIFICATE,
    Problem.STALE,
    Problem.REFUSED,
}
_IN_ORDER = {Problem.CLOSED, Problem.REMOVED, Problem.REPLACED, Problem.DUPLICATE}


class Channels:
    """Active from `start` to `close`. `key`: from `codec.channel_key`; None turns authentication off.

    `incarnation` rises with each run of this host. `rng` spreads the actions of hosts over time. `nonce`
    returns 16 unpredictable bytes. `passes`: of the host's loop; the default is one of the channels' own.
    """

    def __init__(
        self,
        host_id: int,
        incarnation: int,
        cluster_id: str,
        key: bytes | None,
        settings: ChannelSettings,
        counters: ChannelCounters,
        rng: Random,
        handler: Handler,
        nonce: Callable[[int], bytes] | None = None,
        passes: Passes | None = None,
    ) -> None:
        if not 1 <= host_id <= MAX_CALL:
            raise ValueError(f"host id {host_id} is outside 1 to 2^32 - 1")
        self.identity = Identity(host_id, incarnation, cluster_id, key)
        self.settings = settings
        self.counters = counters
        self.handler = handler
        self.cancellable: set[int] = set()  # methods whose handlers are cancelled with their caller
        self.on_up: Callable[[int, int], None] | None = None  # (host id, incarnation)
        self.on_down: Callable[[int], None] | None = None  # (host id)
        self.on_refused: Callable[[int], None] | None = None  # (host id): that host refuses this host
        self.tls: ChannelTls | None = None  # of a secured host; set before the start
        self.scratch = Scratch()
        self._outcomes = Outcomes(counters)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._passes = passes
        self._rng = rng
        self._nonce = nonce if nonce is not None else secrets.token_bytes
        self._peers: dict[int, Peer] = {}
        self._links: set[Link] = set()
        self._server: asyncio.Server | TlsListener | None = None
        self._closing = False
        self._all_lost: asyncio.Event | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines(self._time_out)
        self._patience = Patience(settings)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of all channels."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @property
    def passes(self) -> Passes:
        if self._passes is None:
            self._passes = Passes(self.loop.call_soon)
        return self._passes

    # --- life

    async def start(self, address: Address, listener: socket.socket | None = None) -> Address:
        """Listens and returns the address. `listener`, a bound TCP socket, replaces `address`.

        Raises OSError if the address cannot be bound.
        """
        own = listener if listener is not None else listening(address)
        await self._listen(own)
        host, port = own.getsockname()[:2]
        self._tick()
        for peer in self._peers.values():
            self._dial(peer)
        return Address(host, port)

    async def _listen(self, listener: socket.socket) -> None:
        settings, tls = self.settings, self.tls
        if tls is None:
            self._server = await self.loop.create_server(
                self._accept, sock=listener, backlog=settings.backlog
            )
            return
        # The cost of a connection is bounded here before its handshake, and after it in `_accept`.
        self._server = made = TlsListener(
            tls.server, Visitors(strangers(settings.handshakes)), settings.handshake, self._arrive
        )
        made.open(listener, settings.backlog)

    async def move(self, listener: socket.socket, gone: str) -> None:
        """Listens with another bound TCP socket instead. Ends the connections of this host's address `gone`,
        which would only be silent, and dials those hosts again.
        """
        if self._closing:
            listener.close()
            return
        before = self._server
        # The new socket first, so that somebody listens all the time.
        await self._listen(listener)
        if before is not None:
            before.close()
        self.leave_address(gone)

    def leave_address(self, gone: str) -> None:
        """Ends the connections from this host's address `gone`, and dials other hosts without a pause."""
        for link in [one for one in self._links if one.own_address == gone]:
            link.end(Problem.LOST, f"this host has no address {gone} any more")
            link.abort()
        for peer in self._peers.values():
            peer.reset_pause()
            if peer.retry is not None:  # it may wait because the address was gone
                peer.stop_dialling()
                self._dial(peer)

    async def close(self) -> None:
        """Sends GOODBYE to all hosts and fails waiting calls. Safe to call twice."""
        if self._closing:
            return
        self._closing = True
        if self._server is not None:
            self._server.close()
        self._deadlines.close()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for peer in list(self._peers.values()):
            self._leave(peer, Problem.CLOSED)
        for link in list(self._links):
            link.end(Problem.CLOSED)
        await self._wait_for_links()

    async def _wait_for_links(self) -> None:
        if self._links:
            self._all_lost = asyncio.Event()
            try:
                await asyncio.wait_for(self._all_lost.wait(), _CLOSE_GRACE)
            except TimeoutError:
                for link in list(self._links):
                    link.abort()

    # --- hosts

    def set_host(self, host_id: int, address: Address | None) -> None:
        """Sets the address of a host. None removes the host, and calls to it fail."""
        if host_id == self.identity.host_id:
            return
        peer = self._peers.get(host_id)
        if address is None:
            if peer is not None:
                self._leave(peer, Problem.REMOVED)
                del self._peers[host_id]
            return
        if peer is None:
            peer = self._peer(host_id)
        if peer.address != address:
            peer.address = address
            peer.reset_pause()
            peer.stop_dialling()
        if self._server is not None:
            self._dial(peer)

    def is_up(self, host_id: int) -> bool:
        """Whether the host is connected."""
        peer = self._peers.get(host_id)
        return peer is not None and peer.link is not None

    def peers(self) -> list[PeerStatus]:
        """Returns all known hosts, by id."""
        return [self._peers[host_id].status() for host_id in sorted(self._peers)]

    def _peer(self, host_id: int) -> Peer:
        peer = self._peers.get(host_id)
        if peer is None:
            peer = self._peers[host_id] = Peer(host_id, self.settings)
        return peer

    def _leave(self, peer: Peer, problem: Problem) -> None:
        peer.stop_dialling()
        if peer.link is not None:
            peer.link.end(problem)
        peer.stop_dialling()
        for call in peer.queue.clear():
            self._outcomes.fail(
                call, Fault.LEADER_UNAVAILABLE, f"host {peer.host_id}: {problem.value}", False
            )

    # --- calls

    def call(
        self, host_id: int, method: int, head: bytes = b"", body: Buffer = b"", *, timeout: float
    ) -> Future[Answer]:
        """Calls a host; never blocks. Fails with the TreecastError of its refusal, or with ChannelError.

        A call to a disconnected host waits for the connection. `body` must not change until the future is
        done. Cancelling the future notifies the other end.
        """
        future: Future[Answer] = self.loop.create_future()
        call = self._new_call(Kind.CALL, method, head, body)
        peer = self._peer_for_call(host_id)
        refusal = self._begin(peer, call, timeout, partial(resolve, future))
        if peer is None or refusal:
            self._outcomes.fail(call, Fault.LEADER_UNAVAILABLE, refusal, False)
        else:
            future.add_done_callback(partial(self._settled, peer, call))
        return future

    def call_then(
        self, host_id: int, method: int, then: Then, head: bytes = b"", body: Buffer = b"", *, timeout: float
    ) -> None:
        """As `call`, but calls `then` with the answer or the error: without a future, and in the turn in
        which the answer arrives. `then` is never called before this returns."""
        call = self._new_call(Kind.CALL, method, head, body)
        refusal = self._begin(self._peer_for_call(host_id), call, timeout, then)
        if refusal:
            self.loop.call_soon(self._outcomes.fail, call, Fault.LEADER_UNAVAILABLE, refusal, False)

    def _begin(self, peer: Peer | None, call: Call, timeout: float, then: Then) -> str:
        """Queues a call. Returns the reason if it is refused: then the caller has to fail it."""
        call.waiter = then
        self.counters.calls += 1
        self._outcomes.waiting += 1
        refusal = self._refusal(peer, call)
        if peer is None or refusal:
            return refusal
        peer.calls += 1
        self._deadlines.add(self.loop, self.loop.time() + timeout, peer, call, self._outcomes.waiting)
        self._queue(peer, call)
        return ""

    def notify(self, host_id: int, method: int, head: bytes = b"", body: Buffer = b"") -> bool:
        """Sends a notice, which has no answer. Returns False, and sends nothing, if the host is not connected
        or too much waits.

        `body` must never change.
        """
        call = self._new_call(Kind.NOTICE, method, head, body)
        peer = self._peers.get(host_id)
        self.counters.notices += 1
        if peer is None or peer.link is None or self._refusal(peer, call):
            self.counters.notices_dropped += 1
            return False
        self._queue(peer, call)
        return True

    def _new_call(self, kind: Kind, method: int, head: bytes, body: Buffer) -> Call:
        if not 0 <= method <= MAX_METHOD:
            raise ValueError(f"method {method} is outside 0 to {MAX_METHOD}")
        return Call(kind, method, head, body)

    def _peer_for_call(self, host_id: int) -> Peer | None:
        """Returns the peer to call. Creates one for an unknown host, which may still join."""
        return None if self._closing or host_id == self.identity.host_id else self._peer(host_id)

    def _refusal(self, peer: Peer | None, call: Call) -> str:
        """Returns the reason not to queue a call; empty to queue it."""
        if peer is None:
            return "the channels are closed" if self._closing else "a host has no channel to itself"
        longest = self.settings.longest if peer.link is None else peer.link.session.peer.longest
        if call.size > longest:
            return f"a request of {call.size} bytes; {longest} are taken"
        if peer.queue.calls and peer.queue.bytes + call.cost > self.settings.queue:
            return f"{peer.queue.bytes} bytes of calls wait for host {peer.host_id} already"
        return ""

    def _queue(self, peer: Peer, call: Call) -> None:
        peer.queue.add(call)
        if peer.link is not None:
            peer.link.session.call_added(call)
            peer.link.flush_soon()

    def _settled(self, peer: Peer, call: Call, future: Future[Answer]) -> None:
        if call.wanted and future.cancelled():
            self._forget(peer)
            self._give_up(peer, call)
            self._outcomes.over(call)

    def _give_up(self, peer: Peer, call: Call) -> bool:
        """Gives up a call. Returns whether any of it has been sent."""
        if not call.begun:
            peer.queue.forget(call)
            return False
        if peer.link is not None:
            peer.link.session.cancel(call)
            peer.link.flush_soon()
        return True

    def _forget(self, peer: Peer) -> None:
        """Forgets a host that never had an address."""
        if peer.address is None and not peer.incarnation and peer.queue.calls == 1:
            self._peers.pop(peer.host_id, None)

    def _time_out(self, peer: Peer, call: Call) -> None:
        self._forget(peer)
        sent = self._give_up(peer, call)
        if sent:
            detail = f"host {peer.host_id} did not answer in time"
        elif peer.link is not None:
            detail = f"host {peer.host_id} took no more requests in time"
        else:
            detail = f"host {peer.host_id} is not connected: {peer.last_error or 'not heard of yet'}"
        self._outcomes.fail(call, Fault.TIMED_OUT, detail, sent)

    # --- connections

    def _accept(self) -> LinkProtocol:
        self.counters.accepted += 1
        link = Link(self, 0)
        self._links.add(link)
        if sum(not one.since for one in self._links) > self.settings.handshakes:
            link.end(Problem.CROWDED)
        return LinkProtocol(link)

    def _arrive(self, arrival: Arrival) -> LinkProtocol:
        """Takes a connection whose TLS handshake begins."""
        made = self._accept()
        arrival.failed = partial(self._not_shaken, made.link, arrival)
        return made

    def _not_shaken(self, link: Link, arrival: Arrival) -> None:
        link.peer_address = arrival.peer
        link.unmade()
        link.end(Problem.HANDSHAKE)
        self._lose(link)

    def new_session(self, link: Link) -> Session:
        """Creates the session of a link."""
        nonce = self._nonce(NONCE_SIZE)
        peer = self._peers.get(link.host_id) if link.dialled else None
        now = self.loop.time()
        if peer is None:
            return Session(self.identity, self.settings, self.scratch, nonce, now)
        return Session(
            self.identity, self.settings, self.scratch, nonce, now, peer.host_id, peer.last_connection
        )

    def _dial(self, peer: Peer) -> None:
        busy = peer.link is not None or peer.dialling is not None or peer.retry is not None
        if busy or peer.address is None or self._closing:
            return
        peer.dialling = self.loop.create_task(self._connect(peer, peer.address))

    async def _connect(self, peer: Peer, address: Address) -> None:
        link = Link(self, peer.host_id)
        self._links.add(link)
        self.counters.dialled += 1
        try:
            client = self.tls.client if self.tls is not None else None
            async with asyncio.timeout(self.settings.dial):
                await connect(self.loop, address, lambda: LinkProtocol(link), client)
        except (OSError, TimeoutError) as error:
            link.unmade()
            link.errno = number_of(error)
            link.end(Problem.UNREACHABLE, f"{address}: {why(error, self.settings.dial)}")
            self._lose(link)
        except asyncio.CancelledError:
            link.unmade()
            link.end(Problem.DUPLICATE)
            self._lose(link)
            raise
        finally:
            # Cancelled, it may find that another attempt has taken its place.
            if peer.dialling is asyncio.current_task():
                peer.dialling = None
                self._dial_later(peer, link)

    def _dial_later(self, peer: Peer, last: Link) -> None:
        """Schedules the next attempt after a connection has ended or failed."""
        known = self._peers.get(peer.host_id) is peer
        if not last.session.closed or not known or self._closing or peer.address is None:
            return
        if peer.link is None and peer.retry is None and peer.dialling is None:
            peer.retry = self.loop.call_later(peer.next_pause(self._rng), self._retry, peer)

    def _retry(self, peer: Peer) -> None:
        peer.retry = None
        self._dial(peer)

    # --- callbacks of links

    def proven(self, link: Link, event: Proven) -> None:
        """Takes an authenticated connection. The host with the lower id chooses one of several."""
        peer = self._peer(event.host_id)
        if event.incarnation < peer.incarnation:
            link.end(Problem.STALE, f"{event.incarnation}, known is {peer.incarnation}")
            return
        if _not_vouched(self, link, event.host_id):
            return
        if not link.session.chooses:
            return
        if peer.link is not None and event.incarnation == peer.incarnation and not _lost(peer.link, event):
            link.end(Problem.DUPLICATE)
            return
        link.session.open()
        self._use(peer, link)

    def opened(self, link: Link) -> None:
        """Takes a connection that the choosing end has opened."""
        peer = self._peer(link.host_id)
        if link.session.peer.incarnation < peer.incarnation:
            link.end(Problem.STALE)
            return
        if _not_vouched(self, link, link.host_id):
            return
        self._use(peer, link)

    def _use(self, peer: Peer, link: Link) -> None:
        if peer.link is not None:
            peer.link.end(Problem.REPLACED)
        session = link.session
        peer.link = link
        peer.incarnation = session.peer.incarnation
        peer.last_connection = session.connection
        peer.last_error = peer.advice = ""
        peer.refused = False
        peer.reset_pause()
        if not link.dialled:
            peer.stop_dialling()
        for other in [one for one in self._links if one.host_id == peer.host_id and one is not link]:
            other.end(Problem.DUPLICATE)
        link.since = time.time()
        self.counters.opened += 1
        _log.info("host connected", host=peer.host_id, run=peer.incarnation)
        session.attach(peer.queue)
        link.flush_soon()
        if self.on_up is not None:
            tell(self.on_up, peer.host_id, peer.incarnation)

    def answered(self, link: Link, call: Call, answer: Answer | TreecastError) -> None:
        self.counters.answered += 1
        self._outcomes.finish(call, answer)

    def ended(self, link: Link, event: Ended) -> None:
        """Takes the end of a connection, or of an attempt."""
        self._report(link, event)
        if event.problem in _TOO_SLOW and not event.by_peer:
            self._patience.in_vain(self.loop.time())
        peer = self._peers.get(link.host_id)
        if peer is not None and event.problem not in _IN_ORDER:
            peer.last_error = str(event)
            peer.advice = next_step(event.problem, link.errno)
            self._note_refused(peer, event)
        detail = f"host {link.host_id}: {event}"
        for call in link.session.pending:
            self._outcomes.fail(call, Fault.LEADER_UNAVAILABLE, detail, True)
        if peer is not None and peer.link is link:
            self._down(peer)

    def _note_refused(self, peer: Peer, event: Ended) -> None:
        """Notes that a host refuses this one. An old run of that host, or an expelled one, does not count."""
        own_word = event.problem in (Problem.STALE, Problem.CERTIFICATE) and not event.by_peer
        peer.refused = event.problem in _NOT_ACCEPTED and not own_word
        if peer.refused and self.on_refused is not None:
            tell(self.on_refused, peer.host_id)

    def _down(self, peer: Peer) -> None:
        peer.link = None
        self.counters.closed += 1
        if self.on_down is not None:
            tell(self.on_down, peer.host_id)

    def lost(self, link: Link) -> None:
        self._lose(link)
        peer = self._peers.get(link.host_id)
        if peer is not None:
            self._dial_later(peer, link)

    def _lose(self, link: Link) -> None:
        self._links.discard(link)
        if self._all_lost is not None and not self._links:
            self._all_lost.set()

    def _report(self, link: Link, event: Ended) -> None:
        """Counts a problem and logs the 1st, 2nd, 4th, 8th ... of its kind."""
        name = event.problem.name
        count = self.counters.problems.get(name, 0) + 1
        self.counters.problems[name] = count
        if event.problem not in _IN_ORDER and count & (count - 1) == 0:
            who = f"host {link.host_id}" if link.host_id else f"a connection from {link.peer_address}"
            by = "the other end" if event.by_peer else "this end"
            _log.warning("connection of hosts ended", peer=who, reason=event, by=by, count=count)

    # --- time

    def _tick(self) -> None:
        now = self.loop.time()
        patience = self._patience.now(now)
        for link in list(self._links):
            link.session.patience = patience
            link.tick(now)
        self._tick_timer = self.loop.call_later(self.settings.tick, self._tick)


def _lost(link: Link, event: Proven) -> bool:
    """Whether the other end has lost `link`: it named it when it dialled again."""
    return event.last == link.session.connection


def _not_vouched(channels: Channels, link: Link, host_id: int) -> bool:
    """Ends a connection whose certificate is not that of the host, or is refused."""
    reason = channels.tls.vouch(host_id, link.tls) if channels.tls is not None else ""
    if reason:
        link.end(Problem.CERTIFICATE, reason)
    return bool(reason)


def vouch_again(channels: Channels) -> None:
    """Ends the connections of hosts whose certificates are not accepted any more."""
    for link in [one for one in channels._links if one.host_id and one.connected]:
        _not_vouched(channels, link, link.host_id)
