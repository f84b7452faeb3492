"""One VNF's connection without its socket: the allowed frames of each state, and their answers.

              HELLO             welcome()
    NEW ---------------> OPENING ---------> OPEN
     |                      |                |
     +--- anything else ----+--- an error ---+--> OVER

Every pair of state and frame is either listed in `EXPECTED` or a protocol error, which ends the connection.
"""

from __future__ import annotations

import enum
from typing import Final

from .codec import VERSION, Code, CodecError, Cutter, Frame, Type, encode


class State(enum.Enum):
    """The state of a connection."""

    NEW = "nothing has been said"
    OPENING = "the VNF has no id yet"
    OPEN = "all is served"
    OVER = "nothing is taken any more"


EXPECTED: Final[dict[State, frozenset[Type]]] = {
    State.NEW: frozenset({Type.HELLO}),
    State.OPENING: frozenset(),
    State.OPEN: frozenset({Type.STATE, Type.SUBSCRIBE, Type.UNSUBSCRIBE, Type.PUBLISH, Type.PING}),
    State.OVER: frozenset(),
}


class Session:
    """A session. `receive` returns the face's work; the calls below it write the answers."""

    def __init__(self, longest: int) -> None:
        """`longest`: limit of a frame, in bytes."""
        self.state = State.NEW
        self.failure = ""  # the protocol error that ended it
        self._cutter = Cutter(longest)
        self._out: list[bytes] = []

    def receive(self, data: bytes) -> list[Frame]:
        """Returns the requests. After a protocol error there are no more, and `state` is OVER."""
        if self.state is State.OVER:
            return []
        try:
            frames = self._cutter.receive(data)
        except CodecError as error:
            self.fail(Code.PROTOCOL, str(error))
            return []
        asked: list[Frame] = []
        for frame in frames:
            if not self._take(frame, asked):
                break
        return asked

    def _take(self, frame: Frame, asked: list[Frame]) -> bool:
        if frame.type not in EXPECTED[self.state]:
            self.fail(Code.PROTOCOL, f"{frame.type.name} where {self.state.value}")
        elif frame.type is Type.HELLO and frame.version != VERSION:
            self.fail(Code.PROTOCOL, f"version {frame.version}; this is version {VERSION}")
        elif frame.type is Type.PING:
            self._out.append(encode(Frame(Type.PONG, request=frame.request)))
        else:
            if frame.type is Type.HELLO:
                self.state = State.OPENING
            asked.append(frame)
        return self.state is not State.OVER

    # --- answers

    def welcome(self, vnf: int, largest: int) -> None:
        """Tells the VNF its id."""
        if self.state is State.OPENING:
            self.state = State.OPEN
            self._out.append(encode(Frame(Type.WELCOME, version=VERSION, vnf=vnf, number=largest)))

    def done(self, request: int, number: int) -> None:
        """Answers a request; does nothing if nobody waits for it."""
        if request:
            self._out.append(encode(Frame(Type.DONE, request=request, number=number)))

    def state_is(self, request: int, state: int) -> None:
        self._out.append(encode(Frame(Type.STATE_IS, request=request, state=state)))

    def refused(self, request: int, code: Code, text: str) -> None:
        self._out.append(encode(Frame(Type.REFUSED, request=request, code=code, text=text[:1000])))

    def update(self, state: int, vnf: int, number: int, value: bytes) -> None:
        self._out.append(encode(Frame(Type.UPDATE, state=state, vnf=vnf, number=number, value=value)))

    def fail(self, code: Code, text: str) -> None:
        """Says why, and takes nothing more."""
        if self.state is not State.OVER:
            self.state = State.OVER
            self.failure = text
            self._out.append(encode(Frame(Type.ERROR, code=code, text=text[:1000])))

    def data_to_send(self) -> bytes:
        """Returns all that was answered, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data
