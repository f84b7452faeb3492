"""One connection between two daemons, without I/O: handshake, calls both ways, windows, life signs.

    dialler                acceptor
    HELLO        ->
                 <-        HELLO, PROOF        (each end checks cluster, version, host and proof)
    PROOF        ->
    OPEN         -> or <-  OPEN                by the host with the lower id; from now on frames are tagged

Both hosts may dial. Only the one with the lower id opens connections, so there is one answer to the
question which of several is used, and no call is made on one that is then given up.

Windows. Each end says in its hello how many bytes of requests of one group (`number // 20`) it takes
before it has handled them. A request takes its share when its first frame leaves (`charge_of`), and gives
it back with the first frame of its answer; notices give theirs back by CREDIT. So what waits at a slow
handler is bounded. Answers have no window: who calls decides how much it asks for. An end that has too
many bytes of answers unsent begins no more requests (`answers_unsent`); its owner sees to that.

Calls are numbered in the order in which they begin to leave, with no number left out. Each has one end:
an answer, a refusal, or, where it was cancelled, maybe DROPPED.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from msgspec import Struct

from treecast.middleware.model.buffers import Buffer

from .codec import (
    HEADER_SIZE,
    MAX_CALL,
    MAX_REASON,
    NO_CONNECTION,
    PROOF_SIZE,
    ChannelProtocolError,
    Frame,
    Handshake,
    Hello,
    Kind,
    Problem,
    Seal,
    pack_header,
)
from .cutter import Cutter, Scratch
from .events import Answered, Cancelled, Ended, Event, Opened, Proven, Requested
from .incoming import Incoming, check_message, check_more
from .outgoing import Call, CallQueue, Lane, Message, Ring, charge_of
from .settings import GROUP_METHODS, GROUPS, MAX_METHOD, SMALLEST_WINDOW, ChannelSettings
from .states import OWN, STEPS, Own, State

_JOIN: Final = 32 * 1024  # smaller parts are copied together, larger ones are sent from where they lie
_LONGEST_HELLO: Final = 1024
_UNLIKE: Final = (Problem.KIND, Problem.LENGTH, Problem.ENCODING, Problem.UNEXPECTED)
_GAP: Final = 4  # ticks; if more have not come, this end stood still


class Identity(Struct, frozen=True):
    """Who this end is. `key` is that of the cluster's channels (`codec.channel_key`)."""

    host_id: int
    incarnation: int
    cluster_id: str
    key: bytes | None


class Handling(Struct):
    """A request that is being handled here."""

    group: int
    charge: int
    notice: bool
    cancelled: bool = False


class Session(Cutter):
    """One end. `expected` is the host that is dialled, 0 at the end that accepts."""

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
        self.peer = Hello("", 0, 0, b"")
        self.connection = NO_CONNECTION
        self.round_trip = 0.0  # seconds, smoothed; 0 while unknown
        self.heard = now
        self._identity = identity
        self._settings = settings
        self._dialled = expected != 0
        self._expected = expected
        self._started = now
        self._ticked = now
        self._events: list[Event] = []
        self._hello = Hello(
            identity.cluster_id,
            identity.host_id,
            identity.incarnation,
            nonce,
            expected,
            settings.window,
            settings.longest,
            last,
            identity.key is not None,
        )
        self._handshake: Handshake | None = None
        # out
        self._seal_out: Seal | None = None
        self._control: list[tuple[Kind, int, int, int, bytes]] = []  # number, call, body, payload
        self._ring = Ring()
        self._lanes: list[Lane] = []
        self._calls = CallQueue()
        self._next_call = 0
        self._pending: dict[int, Call] = {}
        self._answering: dict[int, Message] = {}
        self._joined = bytearray()
        self._out: list[Buffer] = []
        # in
        self._next_request = 0
        self._requests: dict[int, Incoming] = {}
        self._answers: dict[int, Incoming] = {}
        self._handling: dict[int, Handling] = {}
        self._used = [0] * GROUPS  # of our window, by group
        self._given_back = [0] * GROUPS  # of notices, not yet told
        self._credit_due: set[int] = set()  # groups
        self._pong_due = -1
        # life signs
        self._ping = 0
        self._pinged = now
        self._ponged = True
        if self._dialled:
            self._add_control(Kind.HELLO, 0, 0, 0, self._hello.encode())

    # --- receiving

    def received(self, size: int, now: float) -> list[Event]:
        """`size` bytes came into `receive_buffer()`: what follows from them, in order."""
        self.heard = now
        if self.closed:
            return []
        try:
            self._received(size)
        except ChannelProtocolError as error:
            unlike = self.state is State.HELLO and error.problem in _UNLIKE
            self.end(Problem.NOT_A_CHANNEL if unlike else error.problem, str(error))
        return self.take_events()

    def receive(self, data: Buffer, now: float) -> list[Event]:
        """The same for bytes that lie elsewhere."""
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
        """What has happened since the last call; for what `end` does."""
        events = self._events
        self._events = []
        return events

    def _admit(self, frame: Frame) -> None:
        kind = frame.kind
        if STEPS[self.state][kind] is None:
            raise ChannelProtocolError(Problem.UNEXPECTED, f"{kind.name} while {self.state.name}")
        if kind is Kind.CALL or kind is Kind.NOTICE:
            self._admit_request(frame)
        elif kind is Kind.ANSWER or kind is Kind.FAULT:
            if frame.call not in self._pending or frame.call in self._answers:
                raise ChannelProtocolError(Problem.UNEXPECTED, "an answer to a call that was not made")
            check_message(frame, self._settings.longest)
        elif kind is Kind.REQUEST_MORE:
            check_more(frame, self._requests)
        elif kind is Kind.ANSWER_MORE:
            check_more(frame, self._answers)
        elif frame.length > _LONGEST_HELLO + MAX_REASON:
            raise ChannelProtocolError(Problem.LENGTH, f"{kind.name} of {frame.length} bytes")

    def _admit_request(self, frame: Frame) -> None:
        if frame.call != self._next_request:
            raise ChannelProtocolError(Problem.UNEXPECTED, "a request out of order")
        if frame.number > MAX_METHOD:
            raise ChannelProtocolError(Problem.UNEXPECTED, f"method {frame.number}")
        check_message(frame, self._settings.longest)
        charge = charge_of(frame.head + frame.body, self._settings.window)
        if self._used[frame.number // GROUP_METHODS] + charge > self._settings.window:
            raise ChannelProtocolError(Problem.WINDOW)

    def _place(self, frame: Frame) -> memoryview:
        if frame.kind is Kind.REQUEST_MORE:
            return self._requests[frame.call].room(frame.length)
        if frame.kind is Kind.ANSWER_MORE:
            return self._answers[frame.call].room(frame.length)
        return memoryview(bytearray(frame.length))

    def _take(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        kind = frame.kind
        following = STEPS[self.state][kind]
        assert following is not None  # `_admit` has looked
        if kind is Kind.CALL or kind is Kind.NOTICE:
            self._take_request(frame, payload, placed)
        elif kind is Kind.ANSWER or kind is Kind.FAULT:
            self._take_answer(frame, payload, placed)
        elif kind is Kind.REQUEST_MORE:
            self._take_more(self._requests, frame, payload, placed)
        elif kind is Kind.ANSWER_MORE:
            self._take_more(self._answers, frame, payload, placed)
        else:
            self._take_other(frame, bytes(payload))
            if self.state is not State.CLOSED:
                self.state = following

    def _take_other(self, frame: Frame, payload: bytes) -> None:
        kind = frame.kind
        if kind is Kind.PING:
            self._pong_due = frame.call
        elif kind is Kind.PONG:
            self._take_pong(frame)
        elif kind is Kind.CREDIT:
            self._take_credit(frame)
        elif kind is Kind.CANCEL:
            self._take_cancel(frame)
        elif kind is Kind.DROPPED:
            self._take_dropped(frame)
        elif kind is Kind.HELLO:
            self._take_hello(payload)
        elif kind is Kind.PROOF:
            self._take_proof(payload)
        elif kind is Kind.OPEN:
            self._take_open()
        else:
            self._take_end(payload)

    # --- handshake

    @property
    def chooses(self) -> bool:
        """Whether this end opens the connection: the host with the lower id does."""
        return self._identity.host_id < self.peer.host_id

    def _take_hello(self, payload: bytes) -> None:
        peer = Hello.decode(payload)
        own = self._identity
        self._check_hello(peer)
        self.peer = peer
        if not self._dialled:
            self._hello = Hello(
                own.cluster_id,
                own.host_id,
                own.incarnation,
                self._hello.nonce,
                peer.host_id,
                self._hello.window,
                self._hello.longest,
                self._hello.last,
                self._hello.authenticated,
            )
        mine = self._hello.encode()
        dialler, acceptor = (mine, payload) if self._dialled else (payload, mine)
        self._handshake = Handshake(own.key, dialler, acceptor)
        self.connection = self._handshake.connection()
        if not self._dialled:
            self._add_control(Kind.HELLO, 0, 0, 0, mine)
            self._add_control(Kind.PROOF, 0, 0, 0, self._handshake.proof(False))

    def _check_hello(self, peer: Hello) -> None:
        own = self._identity
        if peer.cluster_id != own.cluster_id:
            raise ChannelProtocolError(Problem.CLUSTER, f"{peer.cluster_id!r} there, {own.cluster_id!r} here")
        if peer.authenticated != (own.key is not None):
            raise ChannelProtocolError(Problem.AUTHENTICATION)
        if peer.host_id == own.host_id:
            raise ChannelProtocolError(Problem.SELF, f"host {own.host_id}")
        if self._dialled and peer.host_id != self._expected:
            raise ChannelProtocolError(Problem.WRONG_HOST, f"{peer.host_id} instead of {self._expected}")
        if peer.to != own.host_id and (self._dialled or peer.to != 0):
            raise ChannelProtocolError(Problem.WRONG_HOST, f"it means {peer.to}, this is {own.host_id}")
        if not peer.host_id or peer.window < SMALLEST_WINDOW:
            raise ChannelProtocolError(Problem.ENCODING, "a hello without host id or window")

    def _take_proof(self, payload: bytes) -> None:
        handshake = self._handshake
        assert handshake is not None
        wanted = handshake.proof(not self._dialled)
        if not compare_digest(wanted, payload):
            raise ChannelProtocolError(Problem.PROOF)
        assert len(wanted) in (0, PROOF_SIZE)
        if self._dialled:
            self._add_control(Kind.PROOF, 0, 0, 0, handshake.proof(True))
        self._lanes = [Lane(group, self.peer.window) for group in range(GROUPS)]
        self._seal_in = handshake.seal(not self._dialled)
        self._seal_out = handshake.seal(self._dialled)
        self._events.append(Proven(self.peer.host_id, self.peer.incarnation, self.peer.last))

    def _take_open(self) -> None:
        if self.chooses:
            raise ChannelProtocolError(Problem.UNEXPECTED, "OPEN by the host with the higher id")
        self._events.append(Opened())

    def begin(self, now: float) -> None:
        """The socket is connected: times run from here."""
        self._started = self._ticked = self._pinged = self.heard = now

    def open(self) -> None:
        """Chooses this connection."""
        following = OWN[self.state][Own.CHOOSE]
        if following is None or not self.chooses:
            raise ValueError(f"a connection that is {self.state.name} cannot be chosen here")
        self.state = following
        self._add_control(Kind.OPEN, 0, 0, 0, b"")

    def end(self, problem: Problem, detail: str = "") -> None:
        """Ends the connection, and tells the other end why. `Ended` is the next and last event."""
        if self.state is State.CLOSED:
            return
        sealed = self.state is State.OPEN or self.state is State.CHOICE
        text = f"{problem.name} {detail}".encode()[:MAX_REASON]
        self._close(Ended(problem, detail, False))
        if problem is not Problem.NOT_A_CHANNEL and problem is not Problem.LOST:
            self._add_control(Kind.GOODBYE if sealed else Kind.REFUSE, 0, 0, 0, text)

    def _take_end(self, payload: bytes) -> None:
        text = "".join(c if c.isprintable() else "?" for c in payload.decode(errors="replace"))
        name, _, detail = text.partition(" ")
        problem = Problem[name] if name in Problem.__members__ else Problem.REFUSED
        self._close(Ended(problem, detail, True))

    def _close(self, event: Ended) -> None:
        self.state = State.CLOSED
        self.closed = True
        self._events.append(event)
        self._ring = Ring()
        self._credit_due.clear()
        self._pong_due = -1
        if event.by_peer:
            self._control.clear()

    # --- requests from the other end

    def _take_request(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        self._next_request = (self._next_request + 1) & MAX_CALL
        group = frame.number // GROUP_METHODS
        charge = charge_of(frame.head + frame.body, self._settings.window)
        self._used[group] += charge
        self._handling[frame.call] = Handling(group, charge, frame.kind is Kind.NOTICE)
        incoming = Incoming(frame, payload, placed)
        if incoming.missing:
            self._requests[frame.call] = incoming
        else:
            self._deliver(incoming)

    def _take_more(self, parts: dict[int, Incoming], frame: Frame, payload: memoryview, placed: bool) -> None:
        incoming = parts[frame.call]
        incoming.add(payload, placed)
        if not incoming.missing:
            del parts[frame.call]
            self._deliver(incoming)

    def _deliver(self, incoming: Incoming) -> None:
        kind = incoming.kind
        head, body = incoming.contents()
        if kind is Kind.CALL or kind is Kind.NOTICE:
            notice = kind is Kind.NOTICE
            self._events.append(Requested(incoming.call, incoming.number, notice, head, body))
            return
        call = self._pending.pop(incoming.call)
        if call.wanted:
            call.wanted = False
            call.drop()
            self._events.append(Answered(call, kind is Kind.FAULT, head, body))

    def _take_cancel(self, frame: Frame) -> None:
        """What has been answered meanwhile is none of our business any more."""
        handling = self._handling.get(frame.call)
        if handling is not None:
            handling.cancelled = True
            if self._requests.pop(frame.call, None) is not None:
                self.done(frame.call)
            else:
                self._events.append(Cancelled(frame.call))
            return
        answer = self._answering.pop(frame.call, None)
        if answer is not None:
            self._ring.answer_left(answer.size)
            answer.drop()
            self._add_control(Kind.DROPPED, 0, frame.call, 0, b"")

    def answer(self, call: int, head: bytes, body: Buffer) -> None:
        """Answers a request. Nothing happens where the connection is over or the caller has gone."""
        self._answer(Kind.ANSWER, call, head, body)

    def refuse(self, call: int, fault: str, detail: str) -> None:
        """Answers a request with a refusal."""
        self._answer(Kind.FAULT, call, fault.encode(), detail.encode())

    def _answer(self, kind: Kind, call: int, head: bytes, body: Buffer) -> None:
        handling = self._handling.get(call)
        if self.state is not State.OPEN or handling is None:
            return
        if handling.cancelled or handling.notice:
            self.done(call)
            return
        message = Message(kind, 0, call, head, body)
        if message.size > self.peer.longest:
            raise ValueError(f"an answer of {message.size} bytes: {self.peer.longest} are taken")
        self._give_back(call, handling)
        self._ring.add_answer(message)
        self._answering[call] = message

    def done(self, call: int) -> None:
        """A notice is handled, or a request that was cancelled."""
        handling = self._handling.get(call)
        if self.state is not State.OPEN or handling is None:
            return
        self._give_back(call, handling)
        if not handling.notice:
            self._add_control(Kind.DROPPED, 0, call, 0, b"")
            return
        group = handling.group
        self._given_back[group] += handling.charge
        if self._given_back[group] > self._settings.window // 4 or not self._used[group]:
            self._credit_due.add(group)

    def _give_back(self, call: int, handling: Handling) -> None:
        del self._handling[call]
        self._used[handling.group] -= handling.charge

    @property
    def answers_unsent(self) -> int:
        """Bytes of answers that have not left."""
        return self._ring.answer_bytes

    @property
    def handling(self) -> int:
        """Requests of the other end that have no answer yet."""
        return len(self._handling)

    # --- calls to the other end

    def attach(self, calls: CallQueue) -> None:
        """Takes calls from this queue; for an open connection."""
        self._calls = calls
        for lane in self._lanes:
            self._wake(lane)

    def call_added(self, call: Call) -> None:
        """A call was added to the queue."""
        self._wake(self._lanes[call.group])

    def cancel(self, call: Call) -> None:
        """Nobody waits for a call any more that has begun to leave."""
        if call.call not in self._pending or self._pending[call.call] is not call:
            return
        call.wanted = False
        call.drop()
        lane = self._lanes[call.group]
        if lane.current is call:
            lane.current = None
        incoming = self._answers.get(call.call)
        if incoming is not None:
            incoming.discard()
        self._add_control(Kind.CANCEL, 0, call.call, 0, b"")

    @property
    def pending(self) -> list[Call]:
        """Calls that have begun to leave and have no answer, in the order in which they began."""
        return [call for call in self._pending.values() if call.wanted]

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def _wake(self, lane: Lane) -> None:
        """Lets a lane take turns if it has something that it may send."""
        if not lane.in_ring and (lane.current is not None or self._startable(lane) is not None):
            self._ring.add_lane(lane)

    def _startable(self, lane: Lane) -> Call | None:
        call = self._calls.first(lane.group)
        if call is None or charge_of(call.size, self.peer.window) > lane.credit:
            return None
        return call

    def _take_answer(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        call = self._pending[frame.call]
        self._return_charge(call)
        incoming = Incoming(frame, payload, placed)
        if not call.wanted:
            incoming.discard()
        if incoming.missing:
            self._answers[frame.call] = incoming
        else:
            self._deliver(incoming)

    def _take_dropped(self, frame: Frame) -> None:
        call = self._pending.get(frame.call)
        if call is None or call.wanted:
            raise ChannelProtocolError(Problem.UNEXPECTED, "DROPPED of a call that was not cancelled")
        del self._pending[frame.call]
        self._answers.pop(frame.call, None)
        self._return_charge(call)

    def _return_charge(self, call: Call) -> None:
        lane = self._lanes[call.group]
        lane.credit += call.charged
        call.charged = 0
        self._wake(lane)

    def _take_credit(self, frame: Frame) -> None:
        if frame.number >= GROUPS or self._lanes[frame.number].credit + frame.body > self.peer.window:
            raise ChannelProtocolError(Problem.WINDOW, "more credit than the window has")
        lane = self._lanes[frame.number]
        lane.credit += frame.body
        self._wake(lane)

    # --- sending

    @property
    def wants_to_send(self) -> bool:
        return bool(self._control) or bool(self._ring) or bool(self._credit_due) or self._pong_due >= 0

    def data_to_send(self, limit: int) -> list[Buffer]:
        """The next frames: about `limit` bytes, or what there is. The parts belong to messages: send soon."""
        sent = self._control_out()
        ring = self._ring
        while ring and sent < limit:
            turn = ring.next()
            sent += self._lane_out(turn) if isinstance(turn, Lane) else self._answer_out(turn)
        if self._joined:
            self._out.append(bytes(self._joined))
            self._joined.clear()
        out = self._out
        self._out = []
        return out

    def _control_out(self) -> int:
        """What is small and goes first. Credit and pongs are one frame however often they fell due."""
        sent = 0
        for group in self._credit_due:
            self._add_control(Kind.CREDIT, group, 0, self._given_back[group], b"")
            self._given_back[group] = 0
        if self._pong_due >= 0:
            self._add_control(Kind.PONG, 0, self._pong_due, 0, b"")
        self._credit_due.clear()
        self._pong_due = -1
        for kind, number, call, body, payload in self._control:
            sent += self._frame_out(kind, number, call, 0, body, payload, b"")
        self._control.clear()
        return sent

    def _lane_out(self, lane: Lane) -> int:
        call = lane.current
        if call is None:
            call = self._startable(lane)
            if call is None:
                lane.in_ring = False
                return 0
            self._begin_call(lane, self._calls.pop(lane.group))
        sent = self._message_out(call, Kind.REQUEST_MORE)
        if call.over:
            lane.current = None
            if call.kind is Kind.NOTICE:
                call.wanted = False
        self._ring.again(lane)
        return sent

    def _begin_call(self, lane: Lane, call: Call) -> None:
        lane.current = call
        call.call = self._next_call
        self._next_call = (self._next_call + 1) & MAX_CALL
        charge = charge_of(call.size, self.peer.window)
        lane.credit -= charge
        if call.kind is Kind.CALL:
            call.charged = charge
            self._pending[call.call] = call

    def _answer_out(self, answer: Message) -> int:
        if answer.over:
            return 0  # dropped
        sent = self._message_out(answer, Kind.ANSWER_MORE)
        if answer.over:
            self._ring.answer_left(answer.size)
            del self._answering[answer.call]
        else:
            self._ring.again(answer)
        return sent

    def _message_out(self, message: Message, more: Kind) -> int:
        kind = more if message.begun else message.kind
        first, second = message.take()
        return self._frame_out(
            kind, message.number, message.call, message.head_size, message.body_size, first, second
        )

    def _frame_out(
        self, kind: Kind, number: int, call: int, head: int, body: int, first: Buffer, second: Buffer
    ) -> int:
        size = len(first) + len(second)
        header = pack_header(size, kind, number, call, head, body)
        joined = self._joined
        joined += header
        if self._seal_out is not None and kind > Kind.REFUSE:
            joined += self._seal_out.tag_parts(header, first, second)
        self._part_out(first)
        self._part_out(second)
        return HEADER_SIZE + size

    def _part_out(self, part: Buffer) -> None:
        if len(part) < _JOIN:
            self._joined += part
            return
        self._out.append(bytes(self._joined))
        self._joined.clear()
        self._out.append(part)

    def _add_control(self, kind: Kind, number: int, call: int, body: int, payload: bytes) -> None:
        self._control.append((kind, number, call, body, payload))

    # --- time

    def next_deadline(self) -> float:
        """When `tick` has something to do, if nothing arrives before."""
        settings = self._settings
        if self.state is not State.OPEN:
            return self._started + settings.handshake
        if not self._ping:  # the first, at once: the round trip is wanted
            return self._pinged
        return min(self._pinged + settings.ping_every, self.heard + settings.silent_after)

    def tick(self, now: float) -> list[Event]:
        """Called every `settings.tick`: says that it lives, and finds out that the other end doesn't."""
        settings = self._settings
        gap = now - self._ticked
        self._ticked = now
        if gap > _GAP * settings.tick:  # this end stood still: what came meanwhile has not been read yet
            self.heard += gap
            self._started += gap
        if self.state is not State.OPEN:
            if now - self._started >= settings.handshake:
                self.end(Problem.HANDSHAKE)
        elif now - self.heard >= settings.silent_after:
            self.end(Problem.SILENT, f"{now - self.heard:.1f} s")
        elif self._ponged and (now - self._pinged >= settings.ping_every or not self._ping):
            self._send_ping(now)
        return self.take_events()

    def _send_ping(self, now: float) -> None:
        self._ping = (self._ping + 1) & MAX_CALL
        self._pinged = now
        self._ponged = False
        self._add_control(Kind.PING, 0, self._ping, 0, b"")

    def _take_pong(self, frame: Frame) -> None:
        if frame.call != self._ping or self._ponged:
            raise ChannelProtocolError(Problem.UNEXPECTED, "an answer to a ping that was not sent")
        self._ponged = True
        measured = max(self.heard - self._pinged, 0.0)
        self.round_trip += (measured - self.round_trip) / 8 if self.round_trip else measured
