"""The STARE fault run, short, and a test that its ledger finds errors."""

from __future__ import annotations

import pytest
from tests.fault.stare.ledger import Ledger
from tests.fault.stare.plan import Options, network_of, operations, states_of
from tests.fault.stare.run import Run, run

from treecast.middleware.wire.stare_signals import Update

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("design", ["embedded", "register"])
def test_the_run_short(design: str) -> None:
    result = run(Options(design=design, states=60, loss=0.1, refresh=5.0, rate=200.0, seed=2))
    assert not result.problems, "\n".join(result.problems)
    assert result.rows["lost on links"] > 50
    assert result.rows["delivered"] == result.rows["addressed"] > 100


def test_a_run_with_so_many_changes_that_late_requests_are_overtaken_by_hundreds() -> None:
    """A neighbour's late request would undo a newer one for good if its number did not reveal it."""
    result = run(Options(states=300, operations=10.0, rate=300_000.0, settle=60.0, seed=1))
    assert not result.problems, "\n".join(result.problems)
    assert result.rows["of them to come to rest"] < 60.0
    assert result.rows["requests of hosts"] > 2000


def test_a_run_is_its_seeds_alone() -> None:
    first, again, other = (run(Options(states=20, switches=5, seed=seed)).rows for seed in (1, 1, 2))
    assert first == again != other


def test_a_switch_that_holds_too_much_or_a_value_that_is_not_there_is_found() -> None:
    one = Run(Options(states=20, switches=5))
    one.play()
    rested = one.rest()
    assert not one.result(rested).problems
    switch = next(iter(one.net.switches.values()))
    assert switch.cpu is not None
    switch.cpu.driver.write(4000, 1 << switch.ports[0])
    pair = next(pair for pair in one.ledger.last if one.ledger.subscribers.get(pair[0]))
    one.ledger.last[pair] = (99, b"never sent")
    text = "\n".join(one.result(rested).problems)
    assert "for state 4000" in text
    assert "has published 99" in text
    assert "account does not close" in text


def test_the_plan_is_as_large_as_it_says() -> None:
    options = Options(states=300)
    network = network_of(options)
    assert len(network.switches) == len(network.hosts) == 20
    assert max(len(network.out[node]) for node in network.switches) <= 6
    found = list(operations(options))
    assert {one.state for one in found if one.what == "join"} == set(states_of(options))
    assert len(found) > 5 * options.states


@pytest.mark.parametrize(
    ("update", "wrong"),
    [
        (Update(301, 1, 5, b"x"), "does not subscribe"),
        (Update(300, 2, 5, b"x"), "its own"),
        (Update(300, 1, 3, b"x"), "twice or too late"),
    ],
)
def test_what_must_not_be_delivered_is_seen(update: Update, wrong: str) -> None:
    ledger = Ledger()
    ledger.joined(2, 300)
    ledger.deliver(2, Update(300, 1, 4, b"good"))
    assert not ledger.problems
    ledger.deliver(2, update)
    assert wrong in ledger.problems[0]
