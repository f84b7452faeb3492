"""How fast an origin sends: windows of replays, and the rate of live data."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import ORIGIN, Network

from treecast.middleware.fabric.core.pacing import Window
from treecast.middleware.fabric.core.peers import Peers
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PaceEvent, PaceState, ReceiverState
from treecast.middleware.fabric.core.timing import TokenBucket, Weight
from treecast.middleware.model.timers import NEVER

LOWEST, HIGHEST = 1000, 64_000
ROUND = 0.01
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["progress", "late", "lost", "stalled"]),
        st.integers(1, 50_000),
        st.floats(0.0001, 1.0),
        st.booleans(),
    ),
    max_size=80,
)


@given(EVENTS)
def test_a_window_stays_within_its_bounds_whatever_happens(
    events: list[tuple[str, int, float, bool]],
) -> None:
    window = Window(LOWEST, LOWEST, HIGHEST, 0.005)
    now = 0.0
    for event, size, passed, used in events:
        now += passed
        before = window.size
        if event == "lost":
            window.asked(size)
            assert window.size == before
        elif event == "stalled":
            window.stalled()
            assert (window.size, window.state) == (LOWEST, PaceState.OPENING)
        else:
            window.progress(size, 0.01 + (passed if event == "late" else 0.0), now, used=used)
            assert window.size >= before / 2
        assert LOWEST <= window.size <= HIGHEST


class Rounds:
    """Drives a window round by round."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.now = 0.0
        window.progress(0, ROUND, 0.0, used=False)  # the first round begins

    def over(self, arrived: int, lost: int = 0, took: float = ROUND, *, used: bool = True) -> float:
        """Ends one round. Returns the window's size after it."""
        if lost:
            self.window.asked(lost)
        step = 1.01 * max(took, ROUND) / 3
        for share in (0, 0, arrived):  # the last report ends the round
            self.now += step
            self.window.progress(share, took, self.now, used=used)
        self.now += 1e-6
        return self.window.size


def test_a_window_doubles_until_losses_are_more_than_usual() -> None:
    window = Window(16_000, 1000, 512_000)
    rounds = Rounds(window)
    for _ in range(4):
        rounds.over(int(window.size))
    assert window.size == 256_000
    assert rounds.over(230_000, 26_000) == pytest.approx(
        0.6 * (256_000 + 230_000)
    )  # a tenth, on a path that lost nothing before
    assert (window.state, window.why) == (PaceState.HELD, PaceEvent.LOSS)
    before = window.size
    assert rounds.over(200_000, 20_000) == before  # these bytes were sent before the reduction
    assert window.state is PaceState.STEADY
    assert rounds.over(int(before)) == min(before * 1.125, 512_000)


def test_a_path_that_always_loses_a_fifth_lets_the_window_grow_all_the_same() -> None:
    window = Window(16_000, 1000, 512_000)
    rounds = Rounds(window)
    for _ in range(60):
        rounds.over(int(0.8 * window.size), int(0.2 * window.size))
    assert window.size == 512_000


def test_more_than_a_third_lost_halves_a_window_whatever_is_usual() -> None:
    window = Window(16_000, 1000, 64_000)
    rounds = Rounds(window)
    for _ in range(20):
        rounds.over(40_000, 40_000)
    assert window.size == 1000


def test_losses_of_the_path_stop_a_window_that_opens_for_a_trial_only() -> None:
    window = Window(16_000, 1000, 4_096_000)
    rounds = Rounds(window)
    count = 0
    while window.size < 4_096_000:
        rounds.over(int(0.8 * window.size), int(0.2 * window.size))
        count += 1
    assert count < 16  # eight doublings; steps of an eighth would need over thirty


def test_what_a_path_usually_loses_may_be_nearly_half() -> None:
    window = Window(64_000, 1000, 512_000)
    rounds = Rounds(window)
    for _ in range(8):
        rounds.over(int(0.72 * window.size), int(0.28 * window.size))
    before = rounds.over(int(0.72 * window.size), int(0.28 * window.size))
    assert rounds.over(int(0.62 * window.size), int(0.38 * window.size)) >= before


def test_a_window_falls_by_as_much_as_a_queue_shows_and_not_below_what_it_began_with() -> None:
    window = Window(4 * LOWEST, LOWEST, HIGHEST, 0.002)
    rounds = Rounds(window)
    rounds.over(28 * LOWEST, took=0.01)  # the path without a queue
    size = window.size
    while window.size == size:
        rounds.over(0, took=0.016)
    assert window.size == pytest.approx(size * 12.5 / 16)
    before = window.size
    while window.size == before:
        rounds.over(0, took=0.1)
    assert before / 2 <= window.size < before  # at most by a half
    for _ in range(20):
        rounds.over(LOWEST, took=0.1)
    assert window.size == pytest.approx(4 * LOWEST, rel=0.2)  # about its initial size


def test_one_that_was_quick_shows_that_there_is_no_queue_however_late_others_are() -> None:
    window = Window(4 * LOWEST, LOWEST, HIGHEST, 0.002)
    rounds = Rounds(window)
    for _ in range(20):
        rounds.over(LOWEST, took=0.03)
        window.progress(LOWEST, 0.01, rounds.now + 0.001)
    assert window.size > 8 * LOWEST


def test_a_way_that_has_become_longer_is_taken_for_granted_after_a_while() -> None:
    window = Window(32 * LOWEST, LOWEST, HIGHEST, 0.002)
    rounds = Rounds(window)
    rounds.over(1, took=0.003)
    for _ in range(500):
        rounds.over(40 * LOWEST, took=0.05)
    assert window.size == HIGHEST


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window(4 * LOWEST, LOWEST, HIGHEST)
    rounds = Rounds(window)
    for _ in range(20):
        rounds.over(LOWEST, used=False)
    assert window.size == 4 * LOWEST


def test_after_a_stall_a_window_opens_to_half_of_what_it_was_and_grows_by_steps_from_there() -> None:
    window = Window(16_000, 1000, 512_000)
    rounds = Rounds(window)
    for _ in range(3):
        rounds.over(int(window.size))
    window.stalled()
    assert window.size == 1000
    while window.state is PaceState.OPENING:
        rounds.over(int(window.size))
    assert 64_000 <= window.size <= 128_000


def test_only_what_is_asked_for_the_first_time_counts_as_lost_of_a_replay() -> None:
    peer = Peers(StreamSettings()).add(2, 0, 100, 0.0)
    assert peer.asks_first(5, 1)
    assert peer.asks_first(5, 3)
    assert not peer.asks_first(5, 3)
    assert not peer.asks_first(4, 9)
    assert peer.asks_first(6, 1)
    peer.rewind(1.0, 0)
    assert peer.asks_first(4, 1)  # it was sent again


class Bursts(Network):
    """Records how much the origin sends at once."""

    def __init__(self, weather: Weather, settings: StreamSettings) -> None:
        super().__init__(3, weather, settings)
        self.bursts: dict[float, int] = {}

    def send(self, source: int, to: Sequence[int], data: bytes) -> None:
        if source == ORIGIN:
            instant = round(self.now, 3)  # turns follow each other within microseconds here
            self.bursts[instant] = self.bursts.get(instant, 0) + len(data)
        super().send(source, to, data)


def test_a_replay_sends_a_window_within_a_turnaround_and_not_at_once() -> None:
    """A report opens a quarter of the window; the round trip is 40 ms, and queues hold less than a window."""
    settings = StreamSettings(
        retain_bytes=1 << 30,
        log_bytes=1 << 30,
        replay_first=400_000,
        replay_window=400_000,
        unsent_bytes=1 << 30,
    )
    network = Bursts(Weather(delay=0.02, jitter=0.0), settings)
    for _ in range(600):
        network.publish(bytes(6_000))
    network.run(0.1)
    late = network.join(3, Progress(0, 0))
    assert network.run_until(lambda: late.next > 200, 5)
    network.bursts.clear()  # the first window goes at once, as no round trip is known
    assert network.run_until(lambda: late.next == 600, 1)
    assert max(network.bursts.values()) < 80_000


def test_a_bucket_that_gets_a_rate_later() -> None:
    bucket = TokenBucket(NEVER, 1000, 0.0)
    bucket.spend(10**9)
    bucket.set_rate(1000.0, 10.0)
    assert not bucket.ready(10.0)
    assert bucket.ready(10.1)
    bucket.spend(200)
    assert not bucket.ready(10.15)
    assert bucket.ready(10.3)
    bucket.set_rate(NEVER, 10.3)
    bucket.spend(10**9)
    assert bucket.ready(10.3)


def test_how_far_one_may_be_behind_in_bytes() -> None:
    weight = Weight(StreamSettings(catch_up_after=1000, catch_up_bytes=1 << 20))
    assert weight.most_behind == 1000
    weight.add(10, 1000)
    assert weight.most_behind == 1000
    for _ in range(100):
        weight.add(1, 16 * 1024)
    assert 60 <= weight.most_behind <= 66


# --- over a network


def test_large_records_that_are_lost_for_a_while_are_replayed_and_not_asked_for_one_by_one() -> None:
    """10 MB are far fewer records than `catch_up_after`, and far more than a buffer holds."""
    settings = StreamSettings(
        silent_after=3.0, report_idle=0.2, catch_up_bytes=1 << 20, buffer_bytes=2 << 20, unsent_bytes=1 << 30
    )
    network = Network(3, Weather(jitter=0.0), settings)
    network.join_all(2, 3)
    for number in range(1000):
        if number == 100:
            network.cut = {3}
        if number == 800:
            network.cut = set()
        network.publish(bytes(10_000))
        network.run(0.001)
    network.run(10.0)
    for host in (2, 3):
        network.assert_exactly_once(host)
    network.assert_accounts_close()
    assert network.sender.row(2).live == 1000
    row = network.sender.row(3)
    assert row.replayed > 500
    assert network.receivers[3].counters.sent.get("NAK", 0) < 100
    assert network.most_memory < 8 << 20


def test_a_replay_over_a_narrow_way_loses_little_and_ends() -> None:
    """The link to the host passes 4 MB/s and drops what would wait longer than 20 ms."""
    settings = StreamSettings(retain_bytes=1 << 30, log_bytes=1 << 30, unsent_bytes=1 << 30)
    network = Network(3, Weather(jitter=0.0, rate=4e6, queue=80_000), settings)
    for _ in range(1000):
        network.publish(bytes(10_000))
    network.run(0.1)
    late = network.join(3, Progress(0, 0))
    assert network.run_until(lambda: late.next == 1000, 6)  # 2.7 s at the full rate of the link
    network.assert_exactly_once(3)
    assert network.sender.counters.sent_bytes < 1.35 * 1000 * 10_000


def test_a_replay_over_a_path_that_loses_a_tenth_gains_on_what_is_published_meanwhile() -> None:
    """Messages waiting behind a lost one are no sign of a queue, and need not be sent again with it."""
    settings = StreamSettings(
        retain_bytes=1 << 30,
        log_bytes=1 << 30,
        unsent_bytes=1 << 30,
        silent_after=60.0,
        catch_up_bytes=1 << 20,
    )
    network = Network(11, Weather(loss=0.1, jitter=0.002, delay=0.03), settings)
    for _ in range(400):
        network.publish(bytes(10_000))
    network.run(0.1)
    late = network.join(3, Progress(0, 0))
    for _ in range(3000):
        network.publish(bytes(5_000))
        network.run(0.01)
        if late.next > network.sender.end - 20:
            break
    assert late.next > network.sender.end - 20
    network.run(5.0)
    network.assert_exactly_once(3)
    network.assert_accounts_close()


def test_who_takes_little_is_replayed_to_slowly_while_others_see_all_at_once() -> None:
    settings = StreamSettings(retain_bytes=1 << 30, silent_after=3.0, report_idle=0.2, catch_up_bytes=1 << 20)
    network = Network(5, Weather(jitter=0.0), settings)
    network.slow = {3: 0.5e6}  # bytes per second that this host can receive
    network.join_all(2, 3)
    behind = []
    for _ in range(1000):
        network.publish(bytes(4000))
        network.run(0.002)
        behind.append(network.sender.end - network.receivers[2].next)
    assert sum(one > 3 for one in behind) * 0.002 < 1.0  # the others wait once, until it counts as slow
    assert max(behind[-300:]) <= 3
    assert network.receivers[3].next < 900
    assert network.run_until(lambda: network.receivers[3].next == 1000, 60)
    for host in (2, 3):
        network.assert_exactly_once(host)
    assert network.sender.row(2).live == 1000


def replayed_beside_live_data(delay: float) -> tuple[float, float]:
    """Returns (the longest delay of live data to host 2 during the replay, the duration of the replay).

    In seconds. Host 3 is replayed 10 MB over one link of 20 MB/s.
    """
    settings = StreamSettings(
        retain_bytes=1 << 30, log_bytes=1 << 30, unsent_bytes=1 << 30, replay_delay=delay, silent_after=60.0
    )
    network = Network(9, Weather(jitter=0.0, uplink=20e6), settings)
    network.join_all(2)
    for _ in range(1000):
        network.publish(bytes(10_000))
        network.run(0.0006)
    assert network.run_until(lambda: network.receivers[2].next == network.sender.end, 5)
    begun, longest = network.now, 0.0
    late = network.join(3, Progress(0, 0))
    while late.next < 1000:
        sent = network.now
        network.publish(bytes(100))
        assert network.run_until(lambda: network.receivers[2].next == network.sender.end, 5)
        longest = max(longest, network.now - sent)
        network.run(max(0.0, 0.005 - (network.now - sent)))
        assert network.now < begun + 60
    took = network.now - begun
    network.run(1.0)
    for host in (2, 3):
        network.assert_exactly_once(host)
    return longest, took


def test_a_replay_leaves_no_queue_for_live_data_and_the_link_is_used_all_the_same() -> None:
    longest, took = replayed_beside_live_data(0.002)
    assert longest < 0.02  # the path takes 1 ms; the first window queues up to 256 KiB
    assert took < 1.5 * 10e6 / 20e6
    longest_before, took_before = replayed_beside_live_data(NEVER)
    assert longest_before > 2 * longest
    assert took < 1.3 * took_before


def test_overload_of_the_whole_path_is_answered_by_sending_less() -> None:
    """The paths pass 3 MB/s; 8 MB/s are published for a second. All hosts complete in bounded time."""
    settings = StreamSettings(
        retain_bytes=1 << 30, log_bytes=1 << 30, silent_after=3.0, report_idle=0.2, unsent_bytes=1 << 30
    )
    network = Network(7, Weather(jitter=0.0, rate=3e6, queue=60_000), settings)
    network.join_all(2, 3, 4)
    for _ in range(500):
        network.publish(bytes(16_000))
        network.run(0.002)
    assert network.sender.live.waits()  # in the log, and not in flight
    assert network.run_until(lambda: all(one.next == 500 for one in network.receivers.values()), 60)
    for host in (2, 3, 4):
        network.assert_exactly_once(host)
        assert network.receivers[host].state is ReceiverState.LIVE
    network.run(2.0)
    network.assert_accounts_close()


def test_large_messages_whose_parts_give_way_to_each_other_all_arrive() -> None:
    """On a lossy path more messages are incomplete at a time than there is room for."""
    settings = StreamSettings(silent_after=3.0, report_idle=0.2, catch_up_bytes=1 << 20, unsent_bytes=1 << 30)
    network = Network(3, Weather(loss=0.01, jitter=0.0), settings)
    network.join_all(2, 3)
    network.cut = {3}
    for _ in range(20):
        network.publish(bytes(700_000))
        network.run(0.01)
    network.cut = set()
    for _ in range(50):
        network.publish(bytes(100))
        network.run(0.01)
    network.run(10.0)
    for host in (2, 3):
        network.assert_exactly_once(host)
    network.assert_accounts_close()
    row = network.sender.row(3)
    assert row.replayed + row.repaired >= 20
