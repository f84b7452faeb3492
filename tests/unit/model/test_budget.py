"""The work budget: what it allows in one pass of the loop, and who comes next."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treecast.middleware.model.budget import WorkBudget, unbounded


class Loop:
    """A loop of which the tests make each pass, with a clock that only they move."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, work: Callable[[], None]) -> None:
        self._soon.append(work)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for work in soon:
            work()

    @property
    def idle(self) -> bool:
        return not self._soon


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def budget(loop: Loop) -> WorkBudget:
    return WorkBudget(loop.time, loop.call_soon, 1.0)


def test_all_who_work_in_a_pass_share_its_time(loop: Loop, budget: WorkBudget) -> None:
    assert not budget.spent()
    loop.now = 0.9
    assert not budget.spent()
    loop.now = 1.0
    assert budget.spent()
    loop.turn()
    assert not budget.spent()


def test_who_has_waited_comes_before_the_others(loop: Loop, budget: WorkBudget) -> None:
    asked: list[bool] = []
    budget.later(lambda: asked.append(budget.spent()))
    assert budget.spent()  # a newcomer
    loop.turn()
    assert asked == [False]
    assert not budget.spent()


def test_turns_are_taken_in_order_and_one_at_least_has_one_in_each_pass(
    loop: Loop, budget: WorkBudget
) -> None:
    served: list[str] = []

    def costly(name: str) -> Callable[[], None]:
        def work() -> None:
            served.append(name)
            loop.now += 2.0
            budget.later(costly(name))

        return work

    for name in "abc":
        budget.later(costly(name))
    for _ in range(7):
        loop.turn()
    assert "".join(served) == "abcabca"


def test_cheap_ones_share_a_pass(loop: Loop, budget: WorkBudget) -> None:
    served: list[int] = []
    for number in range(5):
        budget.later(lambda number=number: served.append(number))  # type: ignore[misc]
    loop.turn()
    assert served == [0, 1, 2, 3, 4]


def test_who_is_only_woken_is_the_last_of_its_pass(loop: Loop, budget: WorkBudget) -> None:
    served: list[int] = []
    for number in range(3):
        budget.later(lambda number=number: served.append(number), alone=True)  # type: ignore[misc]
    loop.turn()
    assert served == [0]
    loop.turn()
    assert served == [0, 1]


def test_one_that_fails_does_not_stop_the_others(loop: Loop, budget: WorkBudget) -> None:
    served: list[int] = []

    def fail() -> None:
        raise ValueError

    budget.later(fail)
    budget.later(lambda: served.append(1))
    with pytest.raises(ValueError):
        loop.turn()
    loop._soon = loop._soon[-1:]  # what the failing pass had asked for
    loop.turn()
    assert served == [1]


def test_nothing_is_asked_of_the_loop_while_nobody_works(loop: Loop, budget: WorkBudget) -> None:
    budget.later(lambda: None)
    loop.turn()
    loop.turn()
    assert loop.idle


def test_an_unbounded_budget_is_never_spent() -> None:
    budget = unbounded()
    assert not any(budget.spent() for _ in range(3))
