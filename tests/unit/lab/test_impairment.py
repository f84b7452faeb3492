"""The impairment by itself: it accounts for every frame, and injects exactly the requested faults."""

from __future__ import annotations

import random
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.dataplane.lab import impairment
from treecast.middleware.dataplane.lab.impairment import HOLD_SECONDS, OVERTAKERS, Direction, Impairment


def direction(seed: int = 1, **settings: float | bool) -> Direction:
    return Direction(Impairment(**settings), random.Random(seed))  # type: ignore[arg-type]


def frames(count: int) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(count)]


def passed(link: Direction, sent: list[bytes], until: float = 1e9) -> list[bytes]:
    for frame in sent:
        link.receive(frame, 0.0)
    return link.take(until)


def test_a_good_link_changes_nothing() -> None:
    assert passed(direction(), frames(100), until=0.0) == frames(100)


def test_delay_holds_a_frame_until_it_is_due() -> None:
    link = direction(delay=0.5)
    link.receive(b"frame", 10.0)
    assert link.next_due() == 10.5
    assert link.take(10.49) == []
    assert link.take(10.5) == [b"frame"]
    assert link.next_due() is None


def test_a_shorter_delay_lets_nobody_overtake() -> None:
    link = direction(delay=1.0)
    link.receive(b"first", 0.0)
    link.change(delay=0.0)
    link.receive(b"second", 0.1)
    assert link.take(0.9) == []
    assert link.take(1.0) == [b"first", b"second"]


def test_loss_is_counted_and_seeded() -> None:
    link = direction(loss=0.1)
    arrived = passed(link, frames(10_000))
    assert link.counters.lost == 10_000 - len(arrived)
    assert 800 < link.counters.lost < 1200
    assert arrived == passed(direction(loss=0.1), frames(10_000))
    assert arrived != passed(direction(seed=2, loss=0.1), frames(10_000))


def ethernet(version: int, protocol: int, to: str) -> bytes:
    packed = ip_address(to).packed
    if version == 4:
        header = bytes(9) + bytes([protocol]) + bytes(6) + packed
    else:
        header = bytes(6) + bytes([protocol]) + bytes(17) + packed
    return bytes(12) + (b"\x08\x00" if version == 4 else b"\x86\xdd") + header + b"payload"


@pytest.mark.parametrize(
    ("version", "protocol", "to", "passes"),
    [
        (4, 17, "239.1.2.3", False),
        (4, 17, "224.0.0.1", False),
        (4, 17, "10.1.2.3", True),
        (4, 17, "240.0.0.1", True),
        (4, 2, "224.0.0.22", True),  # IGMP
        (6, 17, "ff18::1", False),
        (6, 17, "fd00::1", True),
        (6, 58, "ff02::1", True),  # neighbour discovery
        (6, 0, "ff02::16", True),  # MLD, behind a hop-by-hop header
    ],
)
def test_a_link_that_forgets_groups_passes_all_else(
    version: int, protocol: int, to: str, passes: bool
) -> None:
    link, frame = direction(forgets=True), ethernet(version, protocol, to)
    assert passed(link, [frame]) == ([frame] if passes else [])
    assert link.counters.cut == (not passes)
    link.check_invariants()
    link.change(forgets=False)
    assert passed(link, [frame]) == [frame]


@given(st.binary(max_size=60))
def test_any_frame_may_come_to_a_link_that_forgets_groups(frame: bytes) -> None:
    link = direction(forgets=True)
    passed(link, [frame])
    link.check_invariants()


def test_a_copy_follows_its_frame() -> None:
    link = direction(duplicate=0.3)
    arrived = passed(link, frames(1000))
    assert sorted(set(arrived)) == frames(1000)
    assert len(arrived) == 1000 + link.counters.doubled
    assert arrived == sorted(arrived)


def test_a_frame_is_overtaken_by_later_ones() -> None:
    link = Direction(Impairment(reorder=0.5), Script([0.0, *[0.9] * 9]))
    assert passed(link, frames(5), until=0.0) == [frames(5)[n] for n in (1, 2, 0, 3, 4)]
    assert link.counters.reordered == 1
    assert OVERTAKERS == 2


def test_a_held_frame_that_nobody_overtakes_leaves_all_the_same() -> None:
    link = direction(reorder=1.0)
    link.receive(b"alone", 3.0)
    assert link.next_due() == 3.0 + HOLD_SECONDS
    assert link.take(3.0) == []
    assert link.take(3.0 + HOLD_SECONDS) == [b"alone"]
    assert link.counters.reordered == 0


def test_a_cut_link_passes_nothing_until_it_is_healed() -> None:
    link = direction(cut=True)
    assert passed(link, frames(3)) == []
    assert link.counters.cut == 3
    link.change(cut=False)
    assert passed(link, frames(2)) == frames(2)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impairment, "MOST_WAITING_BYTES", 10)
    link = direction(delay=1.0)
    assert len(passed(link, frames(5))) == 2
    assert link.counters.overflow == 3
    link.check_invariants()


@pytest.mark.parametrize("settings", [{"loss": 1.1}, {"delay": -1.0}, {"reorder": -0.1}, {"duplicate": 2.0}])
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    link = direction()
    with pytest.raises(ValueError):
        link.change(**settings)
    assert link.impairment == Impairment()


class Script:
    """A generator that returns given numbers."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = iter(numbers)

    def random(self) -> float:
        return next(self._numbers)


share = st.sampled_from([0.0, 0.1, 0.5, 1.0])


@given(
    seed=st.integers(0, 99),
    settings=st.fixed_dictionaries(
        {"delay": st.sampled_from([0.0, 0.1]), "loss": share, "duplicate": share, "reorder": share}
    ),
    gaps=st.lists(st.sampled_from([0.0, 0.01, 0.2]), max_size=60),
)
def test_every_frame_is_accounted_for(seed: int, settings: dict[str, float], gaps: list[float]) -> None:
    link = direction(seed, **settings)
    now, arrived = 0.0, []
    for number, gap in enumerate(gaps):
        now += gap
        link.receive(bytes([number]), now)
        link.check_invariants()
        arrived += link.take(now)
        link.check_invariants()
    while (due := link.next_due()) is not None:
        arrived += link.take(due)
    assert link.counters.waiting == 0
    assert len(arrived) == len(gaps) + link.counters.doubled - link.counters.lost
    assert len(gaps) - len(set(arrived)) == link.counters.lost
