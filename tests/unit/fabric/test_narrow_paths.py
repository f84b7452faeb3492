"""Hosts behind a link that drops long packets: messages are cut to its size, and little is sent in vain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.fabric.edges import STREAM, Collected, fabrics, until
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PathState
from treecast.middleware.fabric.core.vain import Vain
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.wire.segment import HEADER_SIZE, TAG_SIZE, Message, cut
from treecast.middleware.wire.segment_assembly import Assembly, AssemblyBudget

SETTINGS = StreamSettings(mtu=1400)
SHORT = 1200
START = Progress(0, 0)


class NarrowNetwork(Network):
    """A network in which long packets do not arrive at some hosts, or are dropped at random."""

    def __init__(self, seed: int, weather: Weather, settings: StreamSettings = SETTINGS) -> None:
        super().__init__(seed, weather, settings)
        self.carries: dict[int, int] = {}  # by host: the longest packets that arrive

    def send(self, source: int, to: Sequence[int], data: bytes) -> None:
        fitting = [host for host in to if len(data) <= self.carries.get(host, 1 << 16)]
        if fitting:
            super().send(source, fitting, data)

    def sent_again(self) -> int:
        """Bytes of repairs and replays."""
        return sum(self.sent_by.get((1, purpose), 0) for purpose in ("repair", "replay"))


@pytest.mark.parametrize("others", [0, 2])
def test_what_is_sent_again_in_vain_becomes_rare_until_it_is_recut(others: int) -> None:
    network = NarrowNetwork(1, Weather())
    network.carries[2] = SHORT
    network.join_all(*range(2, 3 + others))
    for _ in range(100):
        network.publish(bytes(1300))
        network.run(0.02)
    network.run(20.0)
    assert network.got[2] == []
    assert all(len(network.got[host]) == 100 for host in range(3, 3 + others))
    assert network.sender.in_vain == [2]
    before = network.sent_again()
    network.run(60.0)
    assert network.sent_again() - before < 60 * 1400  # about one message in 8 s, and never a window

    network.sender.cut_to(SHORT, network.now)
    network.sender.close(network.now)
    assert network.run_until(network.settled, 30.0)
    for host in network.receivers:
        network.assert_exactly_once(host)
    network.assert_accounts_close()


def test_a_host_that_takes_short_messages_gets_nothing_long_in_vain() -> None:
    """Short messages after a long one arrive, but the host cannot settle them."""
    network = NarrowNetwork(2, Weather())
    network.carries[2] = SHORT
    network.join_all(2, 3)
    for number in range(200):
        network.publish(bytes(1300 if number == 5 else 100))
        network.run(0.02)
    network.run(20.0)
    assert network.got[2] == [0, 1, 2, 3, 4]
    before = network.sent_again()
    network.run(60.0)
    assert network.sent_again() - before < 60 * 1400
    network.sender.cut_to(SHORT, network.now)
    assert network.run_until(lambda: len(network.got[2]) == 200, 30.0)


@pytest.mark.parametrize("seed", range(6))
def test_messages_recut_at_any_time_arrive_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    weather = Weather(loss=0.05, reordering=0.1, duplication=0.05, rate=20e6)
    network = NarrowNetwork(seed, weather)
    network.join_all(2, 3, 4)
    for number in range(60):
        network.publish(chance.randbytes(chance.choice([50, 3000, 200_000])))
        network.run(chance.random() * 0.02)
        if number % 7 == 3:
            network.sender.cut_to(chance.choice([600, SHORT, 1400]), network.now)
    network.sender.close(network.now)
    assert network.run_until(network.settled, 120.0)
    for host in network.receivers:
        network.assert_exactly_once(host)
    network.assert_accounts_close()


def test_a_receiver_that_joins_again_is_replayed_to_in_the_new_size() -> None:
    network = NarrowNetwork(3, Weather())
    network.join_all(2, 3)
    for _ in range(50):
        network.publish(bytes(5000))
        network.run(0.005)
    network.carries[3] = SHORT
    network.sender.cut_to(SHORT, network.now)
    for _ in range(50):
        network.publish(bytes(5000))
        network.run(0.005)
    assert network.run_until(lambda: len(network.got[3]) == 100, 20.0)
    network.assert_exactly_once(3)


def test_a_size_above_the_settings_is_not_used() -> None:
    network = NarrowNetwork(1, Weather())
    assert not network.sender.cut_to(9000, network.now)
    assert network.sender.cut_to(600, network.now)
    assert network.sender.cut_to(9000, network.now)
    assert network.sender.mtu == SETTINGS.mtu


# --- assembly


def test_a_message_recut_replaces_what_arrived_of_the_other_size() -> None:
    held = Assembly(AssemblyBudget(1 << 20), 1 << 20)
    message = Message(0, 1, bytes(range(250)) * 10)
    first, *_ = cut(message, 1000, (1, 7, 1), 1)
    assert held.add(first) is None
    *some, last = cut(message, 500, (1, 7, 1), 1)
    assert [held.add(one) for one in some] == [None] * len(some)
    done = held.add(last)
    assert done is not None
    assert done[0] == message
    assert held.used == 0


def test_numbers_of_another_size_alone_mean_the_whole_message() -> None:
    message = Message(0, 1, bytes(2500))
    assert [one.number for one in cut(message, 1400, (1, 7, 1), 1, only=range(7, 9))] == [0, 1]
    assert [one.number for one in cut(message, 1400, (1, 7, 1), 1, only=range(1, 9))] == [1]


# --- tries


def test_tries_are_in_vain_only_after_some_of_the_same_part_over_some_time() -> None:
    vain = Vain(0.5, 8.0)
    assert [vain.tried(7, 0, at) for at in (0.0, 0.1, 0.2)] == [False] * 3
    assert vain.tried(7, 0, 0.4)
    assert not vain.hopeless
    assert vain.tried(7, 0, 1.0)
    assert vain.hopeless
    assert not vain.may_try(1.1)
    assert not vain.tried(7, 3, 1.2)  # what was before it has arrived
    assert not vain.hopeless


def test_hopeless_tries_become_rarer_up_to_a_bound() -> None:
    vain, now, waits = Vain(0.5, 8.0), 0.0, []
    for _ in range(20):
        vain.tried(7, 0, now)
        if vain.hopeless:
            waits.append(vain.again_at - now)
        now = max(now + 0.5, vain.again_at)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, 8.0)
    vain.settled(7)
    assert vain.hopeless
    vain.settled(8)
    assert vain.may_try(now)


# --- at the edge


class NarrowSocket:
    """A socket from which long datagrams do not arrive."""

    def __init__(self, sock: Any, carries: int) -> None:
        self._sock = sock
        self.carries = carries

    def sendto(self, data: bytes, address: Any) -> int:
        return len(data) if len(data) > self.carries else int(self._sock.sendto(data, address))

    def sendmsg(self, buffers: Sequence[bytes], *more: Any) -> int:
        size = sum(map(len, buffers))
        return size if size > self.carries else int(self._sock.sendmsg(buffers, *more))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def narrow(fabric: Fabric, packet: int) -> None:
    fabric._udp.sock = NarrowSocket(fabric._udp.sock, packet - 28)  # type: ignore[assignment]


async def test_a_stream_is_cut_to_what_arrives_at_all_receivers() -> None:
    settings = FabricSettings(stream=STREAM, mtu=1500, offload=False, carriers=())
    async with fabrics(1, 2, 3, settings=settings) as (one, two, three):
        two.on_probe = lambda host, state, nonce: one.paths.seen(2, nonce) and None
        changed: list[int] = []
        one.on_path = changed.append
        narrow(one, 1300)
        origin, sinks = one.originate(7, 1), (Collected(), Collected())
        for fabric, sink in zip((two, three), sinks, strict=True):
            origin.add_receiver(fabric.host, 0)
            fabric.join(1, 7, 1, sink, progress=START)
        one.paths.host_up(2)
        payloads = [bytes([number]) * 5000 for number in range(50)]
        for payload in payloads:
            origin.publish(payload, 1)
        await until(lambda: all(sink.payloads == payloads for sink in sinks))
        (found,) = one.paths.narrow()
        assert (found.host, found.most) == (2, 1500)
        assert 1280 <= found.size <= 1300
        assert origin.sender.mtu == one.paths.segment_bytes(2) < one.stream_settings.mtu
        assert set(changed) == {2}
        origin.remove_receiver(2)
        assert origin.sender.mtu == one.stream_settings.mtu


async def test_a_host_without_an_address_is_probed_once_it_has_one() -> None:
    settings = FabricSettings(stream=STREAM, mtu=1500, carriers=())
    async with fabrics(1, 2, settings=settings) as (one, two):
        answers: list[bool] = []
        two.on_probe = lambda host, state, nonce: answers.append(one.paths.seen(2, nonce))
        one.set_host(2, None)
        one.paths.host_up(2)
        await until(lambda: one.paths._paths[2].search.state is PathState.WAITING)
        one.set_host(2, two.address)
        await until(lambda: one.paths._paths[2].search.state is PathState.COMPLETE)
        assert answers == [True]


async def test_the_least_of_what_hosts_tell_is_used() -> None:
    settings = FabricSettings(stream=STREAM, mtu=9000, carriers=())
    async with fabrics(1, 2, 3, settings=settings) as (one, _, _):
        origin = one.originate(7, 1)
        origin.add_receiver(2)
        one.paths.tell(3, 1500)
        assert origin.sender.mtu == one.stream_settings.mtu
        origin.add_receiver(3)
        assert one.stream_settings.mtu - origin.sender.mtu == 7500
        one.paths.tell(3, 9000)
        assert origin.sender.mtu == one.stream_settings.mtu
        one.paths.tell(2, 65_535)
        assert origin.sender.mtu == one.stream_settings.mtu
        assert one.paths.narrow() == []
        assert part_of(origin.sender.mtu) > 8000


def part_of(mtu: int) -> int:
    return mtu - HEADER_SIZE - TAG_SIZE
