"""One connection between two daemons, without I/O: handshake, calls both ways, windows, keep-alive.

    dialler                acceptor
    HELLO        ->
                 <-        HELLO, PROOF        (each end checks cluster, version, host and proof)
    PROOF        ->
    OPEN         -> or <-  OPEN                by the host with the lower id; from now on frames are tagged

Both hosts may dial. Only the host with the lower id opens connections. So both ends agree which of several
connections is used, and no call is made on a connection that is then given up.

Windows: each end says in its hello how many bytes of unhandled requests of one group (`number // 20`) it
accepts. A request occupies its share (`charge_of`) from the sending of its first frame to the first frame of
its answer. Notices return theirs by CREDIT. This bounds the requests that wait for a slow handler. Answers
have no window, because the caller decides how much it requests. If too many bytes of a group's answers are
unsent, the owner of that end begins no further requests of the group.

Calls are numbered without gaps in the order in which their sending begins. Each ends once: with an answer, a
refusal or, if it was cancelled, possibly DROPPED.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.buffers import Buffer

from .calls import Calling, Serving
from .codec import (
    MAX_CALL,
    MAX_REASON,
    NO_CONNECTION,
    ChannelProtocolError,
    Frame,
    Hello,
    Kind,
    Problem,
)
from .greeting import Greeting, Identity
from .incoming import Cutter, Ended, Event, Opened, Proven, Scratch, check_more
from .outgoing import Call, CallQueue, FrameQueue, Lane, Message, Ring
from .settings import ChannelSettings
from .states import OWN, STEPS, Own, State

_LONGEST_CONTROL: Final = 1024 + MAX_REASON
_UNLIKE: Final = (Problem.KIND, Problem.LENGTH, Problem.ENCODING, Problem.UNEXPECTED)
_GAP: Final = 4  # ticks; after a longer gap this end was itself suspended


class Session(Cutter):
    """One end of a connection. `expected` is the dialled host, 0 at the accepting end.

    `last` is the last connection to that host that was open at this end.
    """

    def __init__(
        self,
        identity: Identity,
        settings: ChannelSettings,
        scratch: Scratch,
        nonce: bytes,
        now: float,
        expected: int = 0,
        last: bytes = NO_CONNECTION,
    ) -> None:
        super().__init__(scratch)
        self.state = State.HELLO
        self.round_trip = 0.0  # seconds, smoothed; 0 while unknown
        self.patience = 1.0  # factor on the settings' time-outs
        self._settings = settings
        self._greeting = Greeting(identity, settings, nonce, expected, last)
        self._events: list[Event] = []
        self._frames = FrameQueue()
        self._ring = Ring()
        self._calling = Calling(settings.longest, self._ring, self._frames)
        self._serving = Serving(settings.window, settings.longest, self._ring, self._frames)
        # keep-alive
        self._started = now
        self._ticked = now
        self._heard = now
        self._ping = 0
        self._pinged = now
        self._ponged = True
        self._pong_due = -1
        if expected:
            self._frames.control(Kind.HELLO, payload=self._greeting.hello())

    @property
    def peer(self) -> Hello:
        """The other end's hello."""
        return self._greeting.peer

    @property
    def connection(self) -> bytes:
        """The name of this connection, the same at both ends."""
        return self._greeting.connection

    # --- receiving

    def received(self, size: int, now: float) -> list[Event]:
        """Takes `size` bytes received into `receive_buffer()`. Returns the resulting events in order."""
        self._heard = now
        if self.closed:
            return []
        try:
            self._received(size)
        except ChannelProtocolError as error:
            unlike = self.state is State.HELLO and error.problem in _UNLIKE
            self.end(Problem.NOT_A_CHANNEL if unlike else error.problem, str(error))
        return self.take_events()

    def receive(self, data: Buffer, now: float) -> list[Event]:
        """Like `received`, for bytes in other memory."""
        events: list[Event] = []
        rest = memoryview(data)
        while len(rest) and not self.closed:
            buffer = self.receive_buffer()
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            events += self.received(size, now)
        return events

    def take_events(self) -> list[Event]:
        """Returns the events since the last call. Needed after `end`."""
        events = self._events
        self._events = []
        return events

    def _admit(self, frame: Frame) -> None:
        kind = frame.kind
        if STEPS[self.state][kind] is None:
            raise ChannelProtocolError(Problem.UNEXPECTED, f"{kind.name} while {self.state.name}")
        if kind is Kind.CALL or kind is Kind.NOTICE:
            self._serving.admit(frame)
        elif kind is Kind.ANSWER or kind is Kind.FAULT:
            self._calling.admit(frame)
        elif kind is Kind.REQUEST_MORE:
            check_more(frame, self._serving.parts)
        elif kind is Kind.ANSWER_MORE:
            check_more(frame, self._calling.parts)
        elif frame.length > _LONGEST_CONTROL:
            raise ChannelProtocolError(Problem.LENGTH, f"{kind.name} of {frame.length} bytes")

    def _place(self, frame: Frame) -> memoryview:
        if frame.kind is Kind.REQUEST_MORE:
            return self._serving.parts[frame.call].room(frame.length)
        if frame.kind is Kind.ANSWER_MORE:
            return self._calling.parts[frame.call].room(frame.length)
        return memoryview(bytearray(frame.length))

    def _take(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        kind = frame.kind
        event: Event | None
        if kind is Kind.CALL or kind is Kind.NOTICE:
            event = self._serving.take(frame, payload, placed)
        elif kind is Kind.ANSWER or kind is Kind.FAULT:
            event = self._calling.take(frame, payload, placed)
        elif kind is Kind.REQUEST_MORE:
            event = self._serving.take_more(frame, payload, placed)
        elif kind is Kind.ANSWER_MORE:
            event = self._calling.take_more(frame, payload, placed)
        elif self.state is State.OPEN:
            event = self._take_control(frame, bytes(payload))
        else:
            event = self._take_greeting(kind, bytes(payload))
        if event is not None:
            self._events.append(event)

    def _take_control(self, frame: Frame, payload: bytes) -> Event | None:
        """Takes a control frame of an open connection."""
        kind = frame.kind
        if kind is Kind.CANCEL:
            return self._serving.cancel(frame.call)
        if kind is Kind.GOODBYE:
            return self._take_end(payload)
        if kind is Kind.CREDIT:
            self._calling.credit(frame.number, frame.body)
        elif kind is Kind.DROPPED:
            self._calling.dropped(frame.call)
        elif kind is Kind.PING:
            self._pong_due = frame.call  # one PONG per turn, for the last PING
        else:
            self._take_pong(frame)
        return None

    # --- handshake

    @property
    def chooses(self) -> bool:
        """Whether this end opens the connection: the host with the lower id does."""
        return self._greeting.own.host_id < self.peer.host_id

    def _take_greeting(self, kind: Kind, payload: bytes) -> Event | None:
        """Takes a frame before the connection is open."""
        if kind is Kind.REFUSE or kind is Kind.GOODBYE:
            return self._take_end(payload)
        following = STEPS[self.state][kind]
        assert following is not None  # checked by `_admit`
        event: Event | None = None
        if kind is Kind.HELLO:
            self._take_hello(payload)
        elif kind is Kind.PROOF:
            event = self._take_proof(payload)
        elif self.chooses:
            raise ChannelProtocolError(Problem.UNEXPECTED, "OPEN by the host with the higher id")
        else:
            event = Opened()
        self.state = following
        return event

    def _take_hello(self, payload: bytes) -> None:
        greeting = self._greeting
        greeting.heard(payload)
        if not greeting.dialled:
            self._frames.control(Kind.HELLO, payload=greeting.hello())
            self._frames.control(Kind.PROOF, payload=greeting.proof())

    def _take_proof(self, payload: bytes) -> Event:
        greeting, peer = self._greeting, self.peer
        greeting.check_proof(payload)
        if greeting.dialled:
            self._frames.control(Kind.PROOF, payload=greeting.proof())
        self._seal_in, self._frames.seal = greeting.seals()
        self._calling.begin(peer.window)
        self._serving.answer_limit = peer.longest
        return Proven(peer.host_id, peer.incarnation, peer.last)

    def begin(self, now: float) -> None:
        """Starts all timers when the socket is connected."""
        self._started = self._ticked = self._pinged = self._heard = now

    def open(self) -> None:
        """Chooses this connection."""
        following = OWN[self.state][Own.CHOOSE]
        if following is None or not self.chooses:
            raise ValueError(f"a connection that is {self.state.name} cannot be chosen here")
        self.state = following
        self._frames.control(Kind.OPEN)

    # --- the end

    def end(self, problem: Problem, detail: str = "") -> None:
        """Ends the connection and sends the reason to the other end. `Ended` is the next and last event."""
        if self.state is State.CLOSED:
            return
        sealed = self.state is State.OPEN or self.state is State.CHOICE
        text = f"{problem.name} {detail}".encode()[:MAX_REASON]
        self._events.append(self._close(Ended(problem, detail, False)))
        # Another protocol would not understand the reason, and a broken connection does not carry it.
        if problem is not Problem.NOT_A_CHANNEL and problem is not Problem.LOST:
            self._frames.control(Kind.GOODBYE if sealed else Kind.REFUSE, payload=text)

    def _take_end(self, payload: bytes) -> Event:
        # It goes into this host's log, which must not take what another host writes for lines of its own.
        text = "".join(c if c.isprintable() else "?" for c in payload.decode(errors="replace"))
        name, _, detail = text.partition(" ")
        problem = Problem[name] if name in Problem.__members__ else Problem.REFUSED
        self._frames.forget_control()
        return self._close(Ended(problem, detail, True))

    def _close(self, event: Ended) -> Event:
        following = OWN[self.state][Own.END]
        assert following is not None
        self.state = following
        self.closed = True
        self._ring = Ring()  # messages are no longer sent
        self._pong_due = -1
        return event

    # --- requests from the other end

    def answer(self, call: int, head: bytes, body: Buffer) -> None:
        """Answers a request. Does nothing if the connection has ended or the caller no longer waits.

        Raises ValueError if the answer is longer than the other end accepts.
        """
        if self.state is State.OPEN:
            self._serving.answer(Kind.ANSWER, call, head, body)

    def refuse(self, call: int, fault: str, detail: str) -> None:
        """Answers a request with a refusal."""
        if self.state is State.OPEN:
            self._serving.answer(Kind.FAULT, call, fault.encode(), detail.encode())

    def done(self, call: int) -> None:
        """Notes that a notice or a cancelled request was handled."""
        if self.state is State.OPEN:
            self._serving.done(call)

    @property
    def answers_unsent(self) -> int:
        """The bytes of unsent answers."""
        return self._ring.answer_bytes

    def answers_unsent_of(self, group: int) -> int:
        """Returns the bytes of unsent answers to requests of one group."""
        return self._serving.unsent(group)

    @property
    def handling(self) -> int:
        """The number of requests from the other end without an answer."""
        return len(self._serving)

    # --- calls to the other end

    def attach(self, queue: CallQueue) -> None:
        """Sends the calls of `queue`, once the connection is open."""
        self._calling.attach(queue)

    def call_added(self, call: Call) -> None:
        """Notes a call that was added to the queue."""
        self._calling.added(call)

    def cancel(self, call: Call) -> None:
        """Cancels a call that has begun to leave."""
        if self.state is State.OPEN:
            self._calling.cancel(call)

    @property
    def pending(self) -> list[Call]:
        """The unanswered calls with a waiting caller, in the order in which they began to leave."""
        return self._calling.waiting()

    @property
    def in_flight(self) -> int:
        return len(self._calling)

    # --- sending

    @property
    def wants_to_send(self) -> bool:
        if bool(self._frames) or bool(self._ring):
            return True
        return self.state is State.OPEN and (self._pong_due >= 0 or self._serving.credit_due)

    def data_to_send(self, limit: int) -> list[Buffer]:
        """Returns the next frames, about `limit` bytes. Parts still belong to messages: send them soon."""
        if self.state is State.OPEN:
            self._serving.tell_credit()
            if self._pong_due >= 0:
                self._frames.control(Kind.PONG, call=self._pong_due)
                self._pong_due = -1
        sent = self._frames.put_control()
        ring = self._ring
        while ring and sent < limit:
            turn = ring.next()
            sent += self._lane_out(turn) if isinstance(turn, Lane) else self._answer_out(turn)
        return self._frames.take()

    def _lane_out(self, lane: Lane) -> int:
        call = self._calling.turn(lane)
        if call is None:
            return 0
        sent = self._frames.put_message(call, Kind.REQUEST_MORE)
        if call.over:
            self._calling.left(lane, call)
        self._ring.again(lane)
        return sent

    def _answer_out(self, answer: Message) -> int:
        if answer.over:
            return 0  # dropped
        sent = self._frames.put_message(answer, Kind.ANSWER_MORE)
        if answer.over:
            self._serving.left(answer)
        else:
            self._ring.again(answer)
        return sent

    # --- time

    def next_deadline(self) -> float:
        """Returns the time at which `tick` has something to do if nothing arrives before."""
        settings = self._settings
        if self.state is not State.OPEN:
            return self._started + settings.handshake * self.patience
        if not self._ping:  # send the first ping at once to measure the round trip
            return self._pinged
        return min(self._pinged + settings.ping_every, self._heard + settings.silent_after * self.patience)

    def tick(self, now: float) -> list[Event]:
        """Sends pings and detects a silent other end. The owner calls it every `settings.tick`."""
        settings = self._settings
        gap = now - self._ticked
        self._ticked = now
        if gap > _GAP * settings.tick:  # this end was suspended and has not yet read what arrived meanwhile
            self._heard += gap
            self._started += gap
        if self.state is not State.OPEN:
            if now - self._started >= settings.handshake * self.patience:
                self.end(Problem.HANDSHAKE)
        elif now - self._heard >= settings.silent_after * self.patience:
            self.end(Problem.SILENT, f"{now - self._heard:.1f} s")
        elif self._ponged and (now - self._pinged >= settings.ping_every or not self._ping):
            self._send_ping(now)
        return self.take_events()

    def _send_ping(self, now: float) -> None:
        self._ping = (self._ping + 1) & MAX_CALL
        self._pinged = now
        self._ponged = False
        self._frames.control(Kind.PING, call=self._ping)

    def _take_pong(self, frame: Frame) -> None:
        if frame.call != self._ping or self._ponged:
            raise ChannelProtocolError(Problem.UNEXPECTED, "an answer to a ping that was not sent")
        self._ponged = True
        measured = max(self._heard - self._pinged, 0.0)
        self.round_trip += (measured - self.round_trip) / 8 if self.round_trip else measured
