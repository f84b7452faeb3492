"""A replay sent by another receiver that has the messages which the slow one lacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.settings import StreamSettings

SETTINGS = StreamSettings(hold_bytes=64 << 20, log_bytes=64 << 20, replay_by_holders=256 * 1024)
PAYLOAD = bytes(10_000)
SLOW, COUNT = 5, 1200


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
