"""Meters by their RFCs, arrays, replication, digests."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.p4.generate.externs import Externs as Generated
from treecast.middleware.dataplane.p4.interpreter.externs import Externs as Interpreted
from treecast.middleware.dataplane.p4.ir.externs import METHODS
from treecast.middleware.dataplane.p4.runtime import (
    CloneSession,
    ControlError,
    CounterData,
    DigestConfig,
    MeterConfig,
    MulticastGroup,
    Problem,
    Replica,
)
from treecast.middleware.dataplane.p4.runtime.arrays import CounterArray, MeterArray, RegisterArray
from treecast.middleware.dataplane.p4.runtime.digests import MAX_WAITING, DigestQueue
from treecast.middleware.dataplane.p4.runtime.meters import GREEN, RED, YELLOW, Meter, checked
from treecast.middleware.dataplane.p4.runtime.replication import Replication


def meter(config: MeterConfig) -> Meter:
    made = Meter()
    made.configure(config, 0.0)
    return made


def test_two_rates() -> None:
    one = meter(MeterConfig(cir=100, cburst=200, pir=1000, pburst=500))
    assert [one.mark(100, 0.0) for _ in range(6)] == [GREEN, GREEN, YELLOW, YELLOW, YELLOW, RED]
    assert one.mark(100, 0.05) == RED  # 50 bytes at the peak rate since
    assert one.mark(100, 0.1) == YELLOW
    assert one.mark(100, 2.0) == GREEN


def test_one_rate_fills_the_excess_bucket_with_what_is_left() -> None:
    one = meter(MeterConfig(cir=100, cburst=200, pir=0, pburst=300, single_rate=True))
    assert [one.mark(100, 0.0) for _ in range(6)] == [GREEN, GREEN, YELLOW, YELLOW, YELLOW, RED]
    assert one.mark(100, 1.0) == GREEN
    assert one.mark(200, 3.0) == GREEN  # full again
    assert one.mark(100, 3.0) == RED
    one.mark(0, 6.0)  # two more seconds for each bucket
    assert [one.mark(100, 6.0) for _ in range(4)] == [GREEN, GREEN, YELLOW, RED]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    one = meter(MeterConfig(cir=100, cburst=100, pir=100, pburst=100))
    assert one.mark(100, 5.0) == GREEN
    assert one.mark(100, 1.0) == RED


def test_a_meter_without_a_config_is_green() -> None:
    assert Meter().mark(1 << 40, 0.0) == GREEN


@pytest.mark.parametrize("config", [MeterConfig(-1, 0, 0, 0), MeterConfig(10, 0, 5, 0)])
def test_meter_configs_that_are_refused(config: MeterConfig) -> None:
    with pytest.raises(ControlError):
        checked(config)


def test_meters_by_packets() -> None:
    array = MeterArray("m", 4, by_bytes=False)
    array.write(None, MeterConfig(1, 1, 1, 2), 0.0)
    assert [array.execute(2, 1500, 0.0) for _ in range(3)] == [GREEN, YELLOW, RED]
    assert array.execute(3, 1500, 0.0) == GREEN
    array.write(3, None, 0.0)
    assert array.read(3) is None
    assert array.execute(9, 1500, 0.0) == GREEN


def test_counters() -> None:
    array = CounterArray("c", 3)
    array.count(1, 60)
    array.count(1, 40)
    array.count(7, 1)
    assert [array.read(i) for i in range(3)] == [CounterData(), CounterData(2, 100), CounterData()]
    array.write(None, CounterData(5, 6))
    assert array.read(2) == CounterData(5, 6)
    for index in (-1, 3):
        with pytest.raises(ControlError) as refused:
            array.read(index)
        assert refused.value.problem is Problem.OUT_OF_RANGE


def test_signed_registers_show_raw_bits() -> None:
    array = RegisterArray("r", 2, 8, signed=True)
    array.put(0, -3)
    array.put(5, 1)
    assert array.read(0) == 0xFD
    array.write(1, 0x80)
    assert (array.get(1), array.get(2)) == (-128, 0)
    with pytest.raises(ControlError):
        array.write(0, 256)


def test_groups_and_sessions() -> None:
    engine = Replication()
    group = MulticastGroup(7, (Replica(1, 0), Replica(1, 1), Replica(2, 0)))
    engine.insert_group(group)
    assert engine.copies == {7: ((1, 0), (1, 1), (2, 0))}
    engine.modify_group(MulticastGroup(7))
    assert engine.copies == {7: ()}
    engine.delete_group(7)
    assert engine.groups() == []
    engine.insert_session(CloneSession(5, (Replica(3),), packet_length=64))
    assert (engine.clones[5], engine.packet_length(5), engine.packet_length(6)) == (((3, 0),), 64, 0)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (MulticastGroup(0), Problem.INVALID),
        (MulticastGroup(1 << 16), Problem.INVALID),
        (MulticastGroup(1, (Replica(1), Replica(1))), Problem.INVALID),
        (MulticastGroup(1, (Replica(1, 1 << 16),)), Problem.INVALID),
        (MulticastGroup(1, tuple(Replica(1, n) for n in range(5000))), Problem.FULL),
        (MulticastGroup(3), Problem.EXISTS),
    ],
)
def test_groups_that_are_refused(group: MulticastGroup, problem: Problem) -> None:
    engine = Replication()
    engine.insert_group(MulticastGroup(3))
    with pytest.raises(ControlError) as refused:
        engine.insert_group(group)
    assert refused.value.problem is problem
    assert list(engine.copies) == [3]


def test_digests_wait_and_are_joined() -> None:
    queue = DigestQueue("d")
    queue.add((1,), 0.0)
    assert queue.take(9.0) == []  # not configured
    queue.insert(DigestConfig(max_timeout=1.0, max_list_size=3, ack_timeout=10.0))
    for values in ((1,), (2,), (1,)):
        queue.add(values, 5.0)
    assert (queue.take(5.5), queue.due_at()) == ([], 6.0)
    (first,) = queue.take(6.0)
    assert (first.list_id, first.values, first.at) == (1, ((1,), (2,)), 5.0)
    queue.add((1,), 7.0)
    assert queue.due_at() is None  # sent, not acknowledged
    queue.ack(1)
    for values in ((1,), (4,), (5,), (6,)):
        queue.add(values, 8.0)
    (full,) = queue.take(8.0)
    assert full.values == ((1,), (4,), (5,))
    queue.add((4,), 30.0)
    assert queue.take(31.0)[0].values == ((6,), (4,))


def test_digests_are_bounded() -> None:
    queue = DigestQueue("d")
    queue.insert(DigestConfig(max_timeout=100.0))
    for number in range(MAX_WAITING + 5):
        queue.add((number,), 0.0)
    assert queue.dropped == 5


@pytest.mark.parametrize("engine", [Generated, Interpreted])
def test_an_engine_has_a_method_for_each_extern(engine: type) -> None:
    assert [name for name, method in METHODS.items() if not callable(getattr(engine, method, None))] == []
