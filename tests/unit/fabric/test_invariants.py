"""The checks of `invariants` find faults, some of which replace methods of interpreted code."""

from __future__ import annotations

import pytest
from tests.unit.fabric.invariants import BrokenError, CheckedStations
from tests.unit.fabric.links import Weather
from tests.unit.fabric.stations import SpinningError

from treecast.middleware.fabric.core import live
from treecast.middleware.fabric.core.live import Live
from treecast.middleware.fabric.core.peers import Peer
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.streams import Streams

of_interpreted_code = pytest.mark.skipif(
    not str(live.__file__).endswith(".py"),
    reason="compiled methods call each other directly, and not what a test puts in their place",
)


def stations() -> CheckedStations:
    weather = Weather(delay=0.0005, uplink=5e6)
    return CheckedStations(1, weather, StreamSettings(mtu=1400), 3, patience=1.0)


def burst(made: CheckedStations, seconds: float = 2.0) -> None:
    group = made.group(1, 7, [2, 3])
    made.run(0.2)
    made.publish(group, 6_000, 300)
    assert made.run_until(lambda: made.complete(group), seconds)


def test_a_burst_without_faults_is_delivered_once_and_in_order() -> None:
    made = stations()
    burst(made)
    assert all(one.overflowed == 0 for one in made.stations.values())
    assert made.sent_bytes[1] < 1.1 * 300 * 6_000


@of_interpreted_code
def test_more_on_its_way_than_the_window_allows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Live, "_may", lambda self: 1 << 20)
    with pytest.raises(BrokenError, match="live bytes"):
        burst(stations())


def test_a_cursor_that_goes_back_is_found() -> None:
    made = stations()
    group = made.group(1, 7, [2, 3])
    made.run(0.2)
    made.publish(group, 6_000, 20)
    made.run(0.05)
    group.sender.live.edge -= 1
    made.publish(group, 6_000, 1)
    with pytest.raises(BrokenError, match="cursor"):
        made.run(1.0)


@of_interpreted_code
def test_a_deadlock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "settle", lambda self, next_, now: None)
    monkeypatch.setattr(Live, "heard", lambda self, peer, report, now: None)
    with pytest.raises(BrokenError, match="nothing was delivered"):
        burst(stations(), 5.0)


def test_a_host_that_spins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "next_deadline", lambda self, now: now)
    with pytest.raises(SpinningError):
        burst(stations())
