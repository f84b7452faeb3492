"""The limits on the connections of a listener."""

from __future__ import annotations

import pytest

from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.request_memory import RequestMemory
from treecast.middleware.model.visitors import LOCAL, Limits, Stage, Total, Visitor, Visitors, address_of

HERE, THERE, ELSEWHERE = ("127.0.0.1", 1), ("192.0.2.1", 1), ("192.0.2.2", 1)


class Connection:
    def __init__(self) -> None:
        self.aborted = False

    def wait_for_memory(self, waits: bool) -> None:
        """Nothing is read."""

    def abort(self) -> None:
        self.aborted = True


class Door:
    """A listener with its connections."""

    def __init__(
        self, limits: Limits, total: Total | None = None, before: RequestMemory | None = None
    ) -> None:
        self.counters = FaceCounters()
        self.visitors = Visitors(limits, RequestMemory(), before, self.counters, total)

    def enter(self, peer: object = HERE, now: float = 0.0) -> tuple[Connection, Visitor | None]:
        connection = Connection()
        return connection, self.visitors.enter(peer, connection, now)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (HERE, LOCAL),
        (("127.1.2.3", 1), LOCAL),
        (("::1", 1, 0, 0), LOCAL),
        (("::ffff:127.0.0.1", 1, 0, 0), LOCAL),
        (THERE, "192.0.2.1"),
        (("::ffff:192.0.2.1", 1, 0, 0), "192.0.2.1"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::1"),
        ("", LOCAL),
        (None, LOCAL),
    ],
)
def test_addresses(peer: object, address: str) -> None:
    assert address_of(peer) == address


def test_a_new_connection_gives_way_and_a_known_one_does_not() -> None:
    door = Door(Limits(most=2))
    (silent, _), (known, visitor) = door.enter(), door.enter()
    assert visitor is not None
    visitor.known()
    assert door.enter()[1] is not None
    assert (silent.aborted, known.aborted) == (True, False)
    latest = next(iter(door.visitors._new))
    latest.known()
    assert door.enter()[1] is None
    assert len(door.visitors) == 2
    assert door.counters.connections_refused == 2


def test_silent_connections_keep_nobody_out() -> None:
    door = Door(Limits(most=100, new=3))
    connections = [door.enter(now=float(turn))[0] for turn in range(10)]
    assert [one.aborted for one in connections] == [True] * 7 + [False] * 3
    assert (len(door.visitors), door.visitors.new) == (3, 3)


def test_silent_connections_end_in_time() -> None:
    door = Door(Limits(new_seconds=10.0))
    (early, _), (late, _), (known, visitor) = door.enter(now=0.0), door.enter(now=5.0), door.enter(now=0.0)
    assert visitor is not None
    visitor.known()
    door.visitors.tick(10.0)
    assert (early.aborted, late.aborted, known.aborted) == (True, False, False)
    door.visitors.postpone(7.0)
    door.visitors.tick(20.0)
    assert not late.aborted
    door.visitors.tick(22.0)
    assert late.aborted


def test_an_address_takes_its_part_and_this_machine_has_no_limit() -> None:
    door = Door(Limits(each=2))
    entered = [door.enter(THERE)[1] for _ in range(3)]
    assert [one is not None for one in entered] == [True, True, False]
    assert door.enter(ELSEWHERE)[1] is not None
    assert all(door.enter(HERE)[1] is not None for _ in range(10))
    assert entered[0] is not None
    entered[0].left()
    assert door.enter(THERE)[1] is not None


def test_several_listeners_share_a_total() -> None:
    total = Total(3)
    first, second = Door(Limits(), total), Door(Limits(), total)
    for door in (first, second, first):
        visitor = door.enter()[1]
        assert visitor is not None
        visitor.known()
    assert second.enter()[1] is None
    visitor.left()
    assert second.enter()[1] is not None


def test_a_visitor_leaves_once() -> None:
    door = Door(Limits(), before=RequestMemory())
    _, visitor = door.enter(THERE)
    assert visitor is not None
    assert visitor.holding.hold(100, 100, 0.0)
    assert door.visitors.before.held == 100
    visitor.known()
    assert (door.visitors.before.held, visitor.stage) == (0, Stage.KNOWN)
    assert visitor.holding.hold(50, 0, 0.0)
    assert door.visitors.memory.held == 50
    visitor.left()
    visitor.left()
    assert (len(door.visitors), door.visitors.memory.held, visitor.stage) == (0, 0, Stage.GONE)


def test_new_ones_of_an_address_give_way_among_themselves() -> None:
    """Also where all of them are new: a flood from one address ends no connection of another."""
    door = Door(Limits(most=100, new=10, new_each=3))
    elsewhere = door.enter(ELSEWHERE)[0]
    flood = [door.enter(THERE) for _ in range(50)]
    assert [one.aborted for one, _ in flood] == [True] * 47 + [False] * 3
    assert not elsewhere.aborted
    assert (len(door.visitors), door.visitors.new) == (4, 4)
    visitor = flood[-1][1]
    assert visitor is not None
    visitor.known()
    assert not door.enter(THERE)[0].aborted
    assert not flood[-1][0].aborted
    assert door.visitors.new == 4
    here = [door.enter(HERE)[0] for _ in range(6)]  # this machine's are not counted by address
    assert not any(one.aborted for one in here)


class Rationed:
    """Lets each address come once."""

    def __init__(self) -> None:
        self.came: set[str] = set()

    def may_connect(self, address: str, now: float) -> bool:
        new = address not in self.came
        self.came.add(address)
        return new


def test_callers_come_at_a_rate() -> None:
    """Of other machines; a connection whose TLS handshake is done has come before."""
    door = Door(Limits())
    door.visitors.callers = Rationed()
    assert door.enter(THERE)[1] is not None
    assert door.enter(THERE)[1] is None
    assert door.enter(ELSEWHERE)[1] is not None
    assert all(door.enter(HERE)[1] is not None for _ in range(3))
    assert door.visitors.enter(THERE, Connection(), 0.0, again=True) is not None
    assert door.counters.connections_refused == 1
