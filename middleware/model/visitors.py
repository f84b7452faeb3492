"""Limits on the connections of one listener: how many, of one address, and how many that are not known yet.

A connection is NEW until its client has logged in, or, where nobody logs in, has sent a whole request. A NEW
connection gives way to a newer one, at first of its own address, and ends after `new_seconds`, so silent ones
keep nobody out. Pure.

    state   enters     is known    time is over, or room is needed   leaves
    NEW     -          KNOWN       GONE, is aborted                  GONE
    KNOWN   -          -           -                                 GONE

A connection over a Unix socket, or from this machine's loopback address, is not counted by address: all local
applications share it.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from msgspec import Struct

from .counters import FaceCounters
from .request_memory import Holder, Holding, RequestMemory

UNLIMITED: Final = 1 << 30
LOCAL: Final = ""  # the address of all connections from this machine


class Stage(enum.Enum):
    NEW = "new"
    KNOWN = "known"
    GONE = "gone"


class Limits(Struct, frozen=True):
    """The limits of one listener. `most`: its connections. `each`: those of one address that is not this
    machine's. `new`: those that are not known yet; `new_each`: of them those of one address.
    """

    most: int = UNLIMITED
    each: int = UNLIMITED
    new: int = UNLIMITED
    new_seconds: float = 10.0
    new_each: int = UNLIMITED


class Admitted(Holder, Protocol):
    """A connection, as the limits see it."""


class Callers(Protocol):
    """How many connections an address may begin in a second (`broker.access.Quotas`)."""

    def may_connect(self, address: str, now: float) -> bool:
        """Counts a new connection of another machine. Returns whether it may come."""


def address_of(peer: object) -> str:
    """Returns the address that `each` counts, of a socket's peer; `LOCAL` for this machine."""
    if not isinstance(peer, tuple):
        return LOCAL
    host = str(peer[0]).removeprefix("::ffff:").partition("%")[0]
    return LOCAL if host == "::1" or host.startswith("127.") else host


class Total:
    """The connections of several listeners together, of which there may be `most`."""

    def __init__(self, most: int = UNLIMITED) -> None:
        self.most = most
        self.count = 0


class Visitors:
    """The connections of one listener. `before` is the budget of requests before log-in, `memory` of all
    others. Those that are turned away, and new ones that are ended, count as `connections_refused`.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        memory: RequestMemory | None = None,
        before: RequestMemory | None = None,
        counters: FaceCounters | None = None,
        total: Total | None = None,
    ) -> None:
        """`before` None: the face has no log-in. `total`: of this and other listeners."""
        self.limits = limits if limits is not None else Limits()
        self.memory = memory if memory is not None else RequestMemory()
        self.before = before if before is not None else self.memory
        self._counters = counters if counters is not None else FaceCounters()
        self._new: dict[Visitor, float] = {}  # when they came, earliest first
        self._new_of: dict[str, dict[Visitor, None]] = {}  # the same by address
        self._each: dict[str, int] = {}
        self._count = 0
        self._total = total if total is not None else Total()
        self.callers: Callers | None = None  # None: as many as come

    def __len__(self) -> int:
        return self._count

    @property
    def new(self) -> int:
        """How many are not known yet."""
        return len(self._new)

    def enter(self, peer: object, connection: Admitted, now: float, *, again: bool = False) -> Visitor | None:
        """Returns the visitor of an accepted connection, None if it has to be turned away. `peer`: its
        socket's. `again`: it has entered before, until its TLS handshake was done.
        """
        limits, address = self.limits, address_of(peer)
        if address != LOCAL and not self._may_come(address, now, again):
            self._counters.connections_refused += 1
            return None
        if address != LOCAL and len(of := self._new_of.get(address, {})) >= limits.new_each:
            next(iter(of)).end()
        if self._new and (self._full or len(self._new) >= limits.new):
            next(iter(self._new)).end()
        if self._full:
            self._counters.connections_refused += 1
            return None
        visitor = Visitor(self, address, connection)
        self._new[visitor] = now
        self._new_of.setdefault(address, {})[visitor] = None
        self._count += 1
        self._total.count += 1
        if address != LOCAL:
            self._each[address] = self._each.get(address, 0) + 1
        return visitor

    def _may_come(self, address: str, now: float, again: bool) -> bool:
        if self._each.get(address, 0) >= self.limits.each:
            return False
        return again or self.callers is None or self.callers.may_connect(address, now)

    @property
    def _full(self) -> bool:
        return self._count >= self.limits.most or self._total.count >= self._total.most

    def tick(self, now: float) -> None:
        """Ends the connections that have been new for too long. Called about once a second."""
        latest = now - self.limits.new_seconds
        for visitor in [one for one, came in self._new.items() if came <= latest]:
            visitor.end()

    def postpone(self, seconds: float) -> None:
        """Gives new connections more time: the process stood still, and read nothing."""
        self._new = {one: came + seconds for one, came in self._new.items()}

    # --- called by visitors

    def known(self, visitor: Visitor) -> None:
        self._new.pop(visitor, None)
        of = self._new_of.get(visitor.address)
        if of is not None:
            of.pop(visitor, None)
            if not of:
                del self._new_of[visitor.address]

    def outdone(self) -> None:
        self._counters.connections_refused += 1

    def left(self, visitor: Visitor) -> None:
        self.known(visitor)
        self._count -= 1
        self._total.count -= 1
        if visitor.address in self._each:
            self._each[visitor.address] -= 1
            if not self._each[visitor.address]:
                del self._each[visitor.address]


class Visitor:
    """One connection, from `Visitors.enter` to `left`. `holding`: the memory of its unfinished request."""

    __slots__ = ("_connection", "_visitors", "address", "holding", "stage")

    def __init__(self, visitors: Visitors, address: str, connection: Admitted) -> None:
        self.address = address
        self.stage = Stage.NEW
        self.holding = Holding(visitors.before, connection)
        self._visitors = visitors
        self._connection: Admitted | None = connection

    def known(self) -> None:
        """The client has logged in."""
        if self.stage is Stage.NEW:
            self.stage = Stage.KNOWN
            self._visitors.known(self)
            if self._visitors.before is not self._visitors.memory:
                self.holding.move(self._visitors.memory)

    def end(self) -> None:
        """Aborts a connection that is new."""
        self._visitors.outdone()
        connection = self._connection
        self.left()
        if connection is not None:
            connection.abort()

    def left(self) -> None:
        """The connection has gone. Safe to call twice."""
        if self.stage is not Stage.GONE:
            self.stage = Stage.GONE
            self._connection = None
            self.holding.left()
            self._visitors.left(self)


def alone(connection: Admitted) -> Visitor:
    """Returns a visitor without limits, for a connection that no listener has accepted."""
    return Visitor(Visitors(), LOCAL, connection)
