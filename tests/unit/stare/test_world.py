"""Hosts and the replica controller over bad links: everybody has the last value of each subscribed state."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.unit.stare.world import CONTROLLER, SETTINGS, Links, World

from treecast.middleware.fabric.stare.subscriptions import SubState
from treecast.middleware.wire.stare import StareKind

STATES = (256, 257, 4_000_000)
LONG = 60.0  # seconds of the world's clock


def test_a_state_comes_to_who_subscribes_and_to_nobody_else() -> None:
    world = World(3, Links())
    one, two, three = world.open(1), world.open(2), world.open(3)
    world.subscribe(two, 256)
    world.run(1)
    world.publish(one, 256, b"a")
    world.publish(one, 257, b"b")
    world.run(1)
    assert [u.value for u in world.got[two][256, one]] == [b"a"]
    assert not world.got[three]
    assert world.table[256] == {2, CONTROLLER}


def test_local_subscribers_need_no_network() -> None:
    world = World(2, Links(loss=0.0))
    one, two = world.open(1), world.open(1)
    world.subscribe(two, 256)
    world.links.loss = 1.0
    world.publish(one, 256, b"a")
    assert [u.value for u in world.got[two][256, one]] == [b"a"]
    world.publish(one, 257, b"b")
    world.subscribe(two, 257)  # returns the last value known here
    assert [u.value for u in world.got[two][257, one]] == [b"b"]
    assert not world.got[one]


def test_a_late_subscriber_gets_the_last_value_and_not_those_before() -> None:
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    for number in range(5):
        world.publish(one, 256, b"%d" % number)
    world.run(1)
    world.subscribe(two, 256)
    world.run(1)
    assert [u.value for u in world.got[two][256, one]] == [b"4"]


def test_a_lost_tail_is_found_by_the_query() -> None:
    """No packet follows the lost one, so only the controller can know."""
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    world.subscribe(two, 256)
    world.publish(one, 256, b"0")
    world.run(1)
    world.table[256].discard(2)
    world.publish(one, 256, b"1")
    world.run(0.05)
    assert world.got[two][256, one][-1].value == b"0"
    world.run(2)
    assert world.got[two][256, one][-1].value == b"1"
    assert world.controller.counters.recovered == 1


def test_what_the_controller_missed_it_gets_from_the_publisher() -> None:
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    world.publish(one, 256, b"0")
    world.run(1)
    world.table[256].discard(CONTROLLER)
    for number in range(1, 4):
        world.publish(one, 256, b"%d" % number)
    world.run(2)
    assert world.controller.span((256, one)) == (3, 4)
    assert world.controller.counters.fetched >= 3
    world.subscribe(two, 256)
    world.run(1)
    assert not world.missing()


@pytest.mark.parametrize("there", [{2, CONTROLLER}, {CONTROLLER}])
def test_a_new_publishers_first_updates_are_not_missed(there: set[int]) -> None:
    """Once the controller has named a publisher, a subscriber is due all of its updates from the first on.

    This holds whether a later packet or the controller's query announces the publisher.
    """
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    world.subscribe(two, 256)
    world.run(1)
    for number, ports in enumerate(({CONTROLLER}, {CONTROLLER}, there)):
        world.table[256] = set(ports)
        world.publish(one, 256, b"%d" % number)
        world.run(0.002)
    world.run(1)
    assert [u.number for u in world.got[two][256, one]] == [0, 1, 2]


def test_what_came_before_the_controllers_first_is_not_gone_while_its_publisher_has_it() -> None:
    """Controller and subscriber miss a new publisher's updates, and its notice of their start is late."""
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    world.subscribe(two, 256)
    world.run(1)
    hear = world.controller.signal
    world.controller.signal = (  # type: ignore[method-assign]
        lambda host, data, now, run=0: hear(host, data, now, run) if host != 1 else None
    )
    for number, there in enumerate(({2}, set(), {2, CONTROLLER})):
        world.table[256] = set(there)
        world.publish(one, 256, b"%d" % number)
        world.run(0.02)
    world.run(0.1)
    assert [u.number for u in world.got[two][256, one]] == [0]
    world.controller.signal = hear  # type: ignore[method-assign]
    world.run(5)
    assert [u.number for u in world.got[two][256, one]] == [0, 1, 2]
    assert world.nodes[2].counters.lost == 0


def test_once_the_controller_knows_of_a_subscription_no_update_is_lost() -> None:
    """Each update comes, in order, though a third of all packets is lost."""
    world = World(3, Links(loss=0.3, double=0.1, jitter=0.05), seed=5)
    one, two, three = world.open(1), world.open(2), world.open(3)
    for vnf in (two, three):
        world.subscribe(vnf, 256)
    world.publish(one, 256, b"first")
    world.run(LONG)
    values = [b"%d" % number for number in range(200)]
    for value in values:
        world.publish(one, 256, value)
        world.run(0.02)
    world.run(LONG)
    for vnf in (two, three):
        assert [u.value for u in world.got[vnf][256, one]][-200:] == values
    assert not any(node.counters.lost for node in world.nodes.values())


def test_large_states_are_cut_and_recovered() -> None:
    world = World(2, Links(loss=0.2, jitter=0.01), seed=3)
    one, two = world.open(1), world.open(2)
    world.subscribe(two, 256)
    values = [random.Random(n).randbytes(64 * SETTINGS.segment_bytes - n) for n in range(5)]
    for value in values:
        world.publish(one, 256, value)
        world.run(0.1)
    world.run(LONG)
    assert [u.value for u in world.got[two][256, one]] == values[-len(world.got[two][256, one]) :]
    assert not world.missing()


def test_the_backlog_is_truncated_to_what_all_have_reported() -> None:
    world = World(3, Links())
    one, two, three = world.open(1), world.open(2), world.open(3)
    world.subscribe(two, 256)
    world.subscribe(three, 256)
    for number in range(50):
        world.publish(one, 256, b"%d" % number)
        world.run(0.02)
    world.run(2)
    assert world.controller.span((256, one)) == (49, 50)
    cut_off = world.nodes[3].signal
    world.nodes[3].signal = lambda data, now: None  # type: ignore[method-assign]
    for number in range(50, 100):
        world.publish(one, 256, b"%d" % number)
    world.run(2)
    assert world.controller.span((256, one)) == (50, 100)
    world.nodes[3].signal = cut_off  # type: ignore[method-assign]
    world.run(20)
    assert world.controller.span((256, one)) == (99, 100)


def test_numbers_go_round_their_14_bits_and_a_late_host_takes_them_right() -> None:
    world = World(3, Links())
    one, two, three = world.open(1), world.open(2), world.open(3)
    world.subscribe(two, 256)
    node = world.nodes[1]
    for number in range(0, 17_000, 200):
        for n in range(number, number + 200):
            node.publish(one, 256, b"%d" % n, world.now)
        world.published[256, one] = b"%d" % (number + 199)
        world.run(0.3)
    world.subscribe(three, 256)
    world.run(1)
    assert not world.missing()
    assert world.got[three][256, one][-1].number == 16_999
    assert [u.number for u in world.got[two][256, one]] == list(range(17_000))


def test_without_switches_a_subscription_is_unanswered_and_still_works() -> None:
    world = World(2, Links())
    world.acknowledges = False
    one, two = world.open(1), world.open(2)
    world.subscribe(two, 256)
    world.run(40)
    assert world.nodes[2].subscription(256) is SubState.UNANSWERED
    before = world.sent[StareKind.SUB_REGISTER]
    world.run(40)
    assert world.sent[StareKind.SUB_REGISTER] - before <= 40 / SETTINGS.refresh
    world.publish(one, 256, b"a")
    world.run(1)
    assert not world.missing()
    world.unsubscribe(two, 256)
    world.run(40)
    assert world.nodes[2].subscription(256) is None


def test_a_refresh_heals_what_a_switch_forgot() -> None:
    world = World(2, Links())
    two = world.open(2)
    world.subscribe(two, 256)
    world.run(1)
    world.table[256].clear()
    world.run(2 * SETTINGS.refresh)
    assert 2 in world.table[256]


def test_a_controller_that_takes_over_learns_all_again() -> None:
    world = World(3, Links(loss=0.1, jitter=0.01))
    one, two, gone = world.open(1), world.open(2), world.open(3)
    world.subscribe(two, 256)
    for vnf in (one, gone):
        world.publish(vnf, 256, b"v%d" % vnf)
    world.run(10)
    world.close(gone)
    world.run(10)
    world.new_controller()
    for node in world.nodes.values():
        node.controller_changed(world.now)
    world.run(10)
    late = world.open(3)
    world.subscribe(late, 256)
    world.publish(one, 256, b"new")
    world.run(LONG)
    assert not world.missing()


def test_a_vnf_that_is_given_an_old_id_goes_on_where_that_one_ended() -> None:
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    world.subscribe(two, 256)
    for number in range(10):
        world.publish(one, 256, b"old %d" % number)
    world.run(1)
    world.close(one)
    world.run(1)
    world.controller.ids._next = one  # as after 16,383 others
    again = world.open(1)
    assert again == one
    world.publish(again, 256, b"new")
    world.run(5)
    assert not world.missing()
    assert world.got[two][256, one][-1].number == 10


def test_a_host_that_is_gone_holds_nothing_back() -> None:
    world = World(3, Links())
    one, two, three = world.open(1), world.open(2), world.open(3)
    world.subscribe(two, 256)
    world.subscribe(three, 256)
    world.publish(one, 256, b"0")
    world.run(1)
    world.nodes[3] = World(1, Links()).nodes[1]  # another process without any state
    world.controller.host_gone(3, world.now)
    del world.vnfs[three], world.subscribed[three], world.got[three]
    for number in range(1, 20):
        world.publish(one, 256, b"%d" % number)
    world.run(2)
    assert world.controller.span((256, one)) == (19, 20)
    assert len(world.controller.ids) == 2


def test_the_controllers_memory_is_bounded() -> None:
    world = World(2, Links())
    one, two = world.open(1), world.open(2)
    world.controller._settings = type(world.controller._settings)(backlog_bytes=10_000)
    world.subscribe(two, 256)
    world.run(1)
    world.nodes[2].signal = lambda data, now: None  # type: ignore[method-assign]  # reports nothing
    for number in range(300):
        world.publish(one, 256 + number % 30, bytes(1000))
        world.run(0.01)
    assert world.controller.size <= 10_000
    assert world.controller.counters.evicted > 0


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 8, b"\x40" + bytes(7), bytes(8), bytes(200)])
def test_garbage_is_counted(data: bytes) -> None:
    world = World(1, Links())
    node = world.nodes[1]
    node.datagram(data, 0.0)
    node.signal(data, 0.0)
    world.controller.datagram(data, 0.0)
    world.controller.signal(1, data, 0.0)
    world.run(1)
    assert sum(node.counters.refused.values()) >= 1


ACTIONS = st.sampled_from(["publish", "publish", "publish", "subscribe", "subscribe", "unsubscribe", "vnf"])


@settings(max_examples=12, phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 1000),
    st.sampled_from([(0.0, 0.0, 0.0), (0.1, 0.1, 0.05), (0.3, 0.2, 0.3)]),
    st.lists(st.tuples(ACTIONS, st.integers(0, 1 << 16)), min_size=10, max_size=60),
)
def test_finally_everybody_has_the_last_value(
    seed: int, bad: tuple[float, float, float], schedule: list[tuple[str, int]]
) -> None:
    world = World(4, Links(*bad), seed)
    vnfs = [world.open(1 + n % 4) for n in range(5)]
    for action, draw in schedule:
        vnf = vnfs[draw % len(vnfs)]
        state = STATES[draw // 7 % len(STATES)]
        if action == "publish":
            world.publish(vnf, state, b"%d" % draw * (1 + draw % 13))
        elif action == "subscribe":
            world.subscribe(vnf, state)
        elif action == "unsubscribe":
            world.unsubscribe(vnf, state)
        else:
            world.close(vnf)
            vnfs[draw % len(vnfs)] = world.open(1 + draw % 4)
        world.run(draw % 5 * 0.02)
    world.run(LONG)
    assert world.missing() == []
