"""A replay sent by another receiver that has the messages which the slow one lacks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.holding import Holding, Share
from treecast.middleware.fabric.core.log import Log, StreamLog
from treecast.middleware.fabric.core.outgoing import Outgoing, OutgoingMessage
from treecast.middleware.fabric.core.receivers import Receivers
from treecast.middleware.fabric.core.reorder import Progress, Reorder
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.wire.segment import Kind, Message, Segment, control, cut
from treecast.middleware.wire.segment_assembly import AssemblyBudget
from treecast.middleware.wire.segment_bodies import Gap, Nak, Skipped

SETTINGS = StreamSettings(hold_bytes=64 << 20, log_bytes=64 << 20, replay_by_holders=256 * 1024)
PAYLOAD = bytes(10_000)
SLOW, COUNT = 5, 1200
RATE = 20e6


def burst(settings: StreamSettings, seed: int = 1, loss: float = 0.0) -> Network:
    """Publishes 12 MB to four hosts by multicast; the link to one has a tenth of the rate."""
    weather = Weather(loss=loss, rate=40e6, queue=1 << 20)
    net = Network(seed, weather, settings, multicast=True)
    net.slow[SLOW] = 4e6
    net.join_all(2, 3, 4, SLOW)
    left = COUNT
    while left:
        while left and net.publish(PAYLOAD) is not None:
            left -= 1
        net.run(0.005)
    net.sender.close(net.now)
    return net


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_who_is_slow_is_replayed_to_by_who_has_it(loss: float) -> None:
    net = burst(SETTINGS, loss=loss)
    assert net.run_until(net.settled, 60)
    for host in net.receivers:
        net.assert_exactly_once(host)
    net.assert_accounts_close()
    sent = net.sent_by
    assert net.sender.peers.get(SLOW) is not None
    assert net.sender.row(SLOW).replayed > COUNT // 2
    assert sum([sent.get((host, "repair"), 0) for host in (2, 3, 4)]) > 0.3 * COUNT * len(PAYLOAD)
    assert sent.get((1, "replay"), 0) < 0.2 * COUNT * len(PAYLOAD)


def test_without_holders_the_origin_replays() -> None:
    net = burst(replace(SETTINGS, replay_by_holders=0))
    assert net.run_until(net.settled, 60)
    net.assert_exactly_once(SLOW)
    assert net.sent_by.get((1, "replay"), 0) > 0.5 * COUNT * len(PAYLOAD)
    assert not any(net.sent_by.get((host, "repair"), 0) for host in (2, 3, 4))


def test_a_holder_that_has_nothing_is_given_up() -> None:
    net = burst(replace(SETTINGS, hold_bytes=0))
    assert net.run_until(net.settled, 60)
    net.assert_exactly_once(SLOW)
    net.assert_accounts_close()
    assert net.sent_by.get((1, "replay"), 0) > 0.5 * COUNT * len(PAYLOAD)


def test_a_holder_that_goes_is_replaced() -> None:
    net = burst(SETTINGS)
    peer = net.sender.peers.get(SLOW)
    assert peer is not None
    assert net.run_until(lambda: peer.holder != 0, 10)
    gone = peer.holder
    net.dead.add(gone)
    net.sender.remove_receiver(gone)
    assert net.run_until(lambda: peer.done, 60)
    net.assert_exactly_once(SLOW)
    assert net.sent_by.get((1, "replay"), 0) < 0.3 * COUNT * len(PAYLOAD)


def caught_up(delay: float) -> tuple[float, float, float]:
    """Cuts a host off for 12 MB, which a holder then replays to it over a link of 20 MB/s.

    Returns (the longest queue of the link in seconds, how long it took, the bytes repaired per payload byte).
    """
    weather = Weather(delay=delay, jitter=0.0, rate=RATE)
    net = Network(3, weather, replace(SETTINGS, unsent_bytes=64 << 20))
    net.join_all(2, 3, 4, SLOW)
    net.cut = {SLOW}
    for _ in range(COUNT):
        assert net.publish(PAYLOAD) is not None
    assert net.run_until(lambda: all(net.receivers[host].next == COUNT for host in (2, 3, 4)), 60)
    net.cut = set()
    assert net.run_until(lambda: repairs(net) > 0, 10)
    begun, queue = net.now, 0.0
    while net.receivers[SLOW].next < COUNT:
        net.run(0.001)
        queue = max(queue, net._free.get(SLOW, 0.0) - net.now)
        assert net.now < begun + 60
    net.assert_exactly_once(SLOW)
    return queue, net.now - begun, repairs(net) / (COUNT * len(PAYLOAD))


def repairs(net: Network) -> int:
    """Returns the bytes that holders have sent."""
    return sum([net.sent_by.get((host, "repair"), 0) for host in (2, 3, 4)])


@pytest.mark.parametrize(("delay", "most_queue", "most_times"), [(0.001, 0.02, 1.5), (0.05, 0.15, 3.5)])
def test_a_holder_fills_the_path_and_not_its_queue(
    delay: float, most_queue: float, most_times: float
) -> None:
    queue, took, sent = caught_up(delay)
    assert queue < most_queue
    assert took < most_times * COUNT * len(PAYLOAD) / RATE
    assert 0.7 < sent < 1.1


MOST = SETTINGS.replay_at_once + SETTINGS.mtu


class Counting:
    """A log that counts the messages that are read from it. It owns a `Log`, as compiled classes cannot be
    inherited from."""

    def __init__(self, count: int) -> None:
        self._log = Log(0, 1 << 30, 1e9)
        self.read = 0
        for _ in range(count):
            self._log.append(Message(self._log.end, 1, PAYLOAD), 0.0)

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        for one in self._log.entries(first, end):
            self.read += 1
            yield one

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def holders(streams: int, count: int) -> tuple[Receivers, list[Counting]]:
    """Makes a host that has `count` messages of each of its streams from host 1."""
    made = Receivers(2, SETTINGS, Random(1))
    logs = [Counting(count) for _ in range(streams)]
    for stream, log in enumerate(logs):
        made.join(1, stream + 1, 1, 0.0, progress=Progress(count, count), held=cast(StreamLog, log))
    return made, logs


def ask(made: Receivers, stream: int, end: int, host: int = 3, first: int = 0) -> None:
    made.receive(control(Kind.NAK, 1, stream, 1, host, Nak((Gap(first, end),)).encode()), 0.0)


def turns(made: Receivers) -> Iterator[dict[int, int]]:
    """Yields the bytes that each turn sends of each stream, until one sends nothing."""
    for turn in range(1000):
        found: dict[int, int] = {}
        for out in made.to_send(turn / 1000):
            if isinstance(out, OutgoingMessage):
                found[out.key[1]] = found.get(out.key[1], 0) + out.size
        if not found:
            return
        yield found
    raise AssertionError("it sends without end")


def test_a_large_request_is_read_as_it_is_sent() -> None:
    made, (log,) = holders(1, 200)
    ask(made, 1, 200)
    sent = 0
    for count, turn in enumerate(turns(made), 1):
        sent += turn[1]
        assert turn[1] <= MOST
        assert log.read <= 4 * count + 2
    assert sent == 200 * len(PAYLOAD)


def test_a_repeated_request_is_answered_once() -> None:
    made, _ = holders(1, 100)
    for host in (3, 4, 3):
        ask(made, 1, 100, host)
    ask(made, 1, 60, first=40)
    assert sum(turn[1] for turn in turns(made)) == 2 * 100 * len(PAYLOAD)
    ask(made, 1, 1)
    assert list(turns(made)) == [{1: len(PAYLOAD)}]


def test_the_streams_of_a_holder_share_a_turn_and_take_turns() -> None:
    made, _ = holders(5, 100)
    for stream in range(1, 6):
        ask(made, stream, 100)
    total = dict.fromkeys(range(1, 6), 0)
    for turn in turns(made):
        assert sum(turn.values()) <= MOST
        for stream, size in turn.items():
            total[stream] += size
        assert max(total.values()) - min(total.values()) <= 2 * MOST, "one stream is ahead of the others"
    assert set(total.values()) == {100 * len(PAYLOAD)}


def test_a_request_for_everything_gets_a_window_and_too_many_are_refused() -> None:
    made, _ = holders(1, 1000)
    ask(made, 1, 2**63)
    sent = sum(turn[1] for turn in turns(made))
    assert SETTINGS.replay_window <= sent <= SETTINGS.replay_window + len(PAYLOAD)
    for first in range(600):
        ask(made, 1, first + 1, first=first)
    (receiver,) = made
    assert receiver.counters.refused["TOO_MANY"] == 600 - 512


@pytest.mark.parametrize("payload", [b"", b"x", bytes(300)])
def test_a_first_segment_that_no_origin_cuts_is_no_size_to_cut_to(payload: bytes) -> None:
    """A host with the key may send one. What is held is still cut to sizes that hold every message."""
    settings = StreamSettings(hold_bytes=1 << 20, mtu=8900)
    key, message = (1, 1, 1), Message(1, 1, bytes(100_000), (), bytes(64))
    holding = Holding(2, key, settings, None, 0.0)
    holding.hold(message, 0.0)
    holding.cut_like(Segment(Kind.DATA, 1, 1, 1, 0, 1, 0, 2, 1, payload))
    buffer = Reorder(settings, AssemblyBudget(1 << 20), 2)
    assert holding.asked(3, Nak((Gap(1, 2, 0, 0),)), buffer, 0.0)
    out: list[Outgoing] = []
    holding.give(out, Share(1 << 20), buffer, 0.0)
    assert sum(one.count for one in out) == len(list(cut(message, settings.mtu, key, 2)))
