"""Work at the end of a pass of the loop: stages in order, and what an end adds to itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from treecast.middleware.model.passes import FACES, LINKS, TURN, Passes


class Loop:
    """Counts passes, as an event loop with `call_soon` makes them."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.number = 0
        self.passes = Passes(self.soon.append)

    def run(self) -> None:
        while self.soon:
            self.number += 1
            works = self.soon[:]
            self.soon.clear()
            for work in works:
                work()


def test_stages_follow_in_one_pass_whatever_the_order_in_which_they_were_added() -> None:
    loop, done = Loop(), list[str]()
    for stage, name in ((TURN, "turn"), (LINKS, "link"), (FACES, "one face"), (FACES, "the other")):
        loop.passes.add(stage, partial(done.append, name))
    assert loop.passes.scheduled
    loop.run()
    assert done == ["one face", "the other", "link", "turn"]
    assert loop.number == 1
    assert not loop.passes.scheduled


def test_a_later_stage_is_added_to_the_same_pass_and_an_earlier_one_to_the_next() -> None:
    loop, done = Loop(), list[tuple[str, int]]()

    def face() -> None:
        done.append(("face", loop.number))
        loop.passes.at(LINKS)(link)

    def link() -> None:
        done.append(("link", loop.number))
        if loop.number == 1:
            loop.passes.at(FACES)(face)

    loop.passes.at(FACES)(face)
    loop.run()
    assert done == [("face", 1), ("link", 1), ("face", 2), ("link", 2)]


def test_work_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    loop, done = Loop(), list[int]()

    def fails() -> None:
        raise ValueError("broken")

    loop.passes.add(FACES, fails)
    loop.passes.add(FACES, lambda: done.append(FACES))
    loop.passes.add(TURN, lambda: done.append(TURN))
    loop.run()
    assert done == [FACES, TURN]
    assert "broken" in caplog.text


@pytest.mark.parametrize("seed", range(20))
def test_everything_that_is_added_is_done_once(seed: int) -> None:
    rng, loop = random.Random(seed), Loop()
    added, done = 0, list[int]()

    def add() -> None:
        nonlocal added
        added += 1
        number = added

        def work() -> None:
            done.append(number)
            while added < 200 and rng.random() < 0.6:
                add()

        loop.passes.add(rng.choice((FACES, LINKS, TURN)), work)

    for _ in range(10):
        add()
    loop.run()
    assert sorted(done) == list(range(1, added + 1))
    assert not loop.passes.scheduled
