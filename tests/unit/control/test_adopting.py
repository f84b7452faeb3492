"""A store that is an older state adopts a host's view: entry by entry, and for random histories."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from treecast.middleware.api.entries import (
    Change,
    Counter,
    HomeEntry,
    HomeKind,
    HostEntry,
    Kind,
    LostRange,
    Presence,
)
from treecast.middleware.control import commands
from treecast.middleware.control.adopting import AHEAD, SKIPPED
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import AdoptView, Returned, Session
from treecast.middleware.control.events import stored
from treecast.middleware.control.state import step
from treecast.middleware.control.values import LAST_STATE_ID, Limits, StateSettings
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.runs import RunMark

GROUP = HomeKind.GROUP


class Line:
    """A state, and the keys that its commands have changed. `copy` branches off another line."""

    def __init__(self, settings: StateSettings | None = None) -> None:
        self.state = ClusterState(settings or StateSettings())
        self.state.pass_time(0.0)
        self.own: set[tuple[Kind, str]] = set()
        self.events: list[tuple[str, str]] = []

    def copy(self) -> Line:
        made = Line(self.state.settings)
        made.state.apply(self.state.entries())
        return made

    def do(self, command: Any) -> Any:
        decision = step(self.state, command)
        self.own |= {(change.kind, change.key) for change in decision.changes}
        self.events += [(event.kind, event.what) for event in decision.events]
        return decision.answer

    def attach(self, name: str, instance: str = "", run: int = 1) -> Session:
        host = self.do(commands.Attach(name, instance or f"data of {name}", "h:1", "1", run))
        return Session(host.host_id, host.incarnation)

    def topic(self, name: str, partitions: int = 1, number: int | None = None, **config: str) -> uuid.UUID:
        topic_id = uuid.UUID(int=number or random.Random(name).getrandbits(120))
        self.do(commands.CreateTopic(name, topic_id, partitions, config))
        return topic_id

    def adopt(self, later: Line, own: frozenset[tuple[Kind, str]] | bool | None = True) -> Returned:
        """Adopts the view of a later line. `own`: True for the keys that this line has changed."""
        known = frozenset(self.own) if own is True else own
        assert not isinstance(known, bool)
        answer = self.do(AdoptView("b", 99, tuple(later.state.entries()), known))
        self.state.check_invariants()
        assert isinstance(answer, Returned)
        return answer


@pytest.fixture
def before() -> Line:
    """The state that was copied: hosts a and b, topic old, a home, a state id, a queue."""
    line = Line()
    a = line.attach("a")
    line.attach("b")
    line.topic("old", number=1)
    line.topic("gone", number=2)
    line.do(commands.AskHome(a, GROUP, "g"))
    line.do(commands.AskHome(a, GROUP, "forgotten"))
    line.do(commands.AllotState(a, ("x",)))
    line.do(commands.PutDefinitions(a, (commands.DefinitionWrite("4://q", b"q"),)))
    return line


def later_than(before: Line) -> Line:
    """Returns the state with what happened afterwards, which the copy does not know."""
    line = before.copy()
    c = line.attach("c")
    line.topic("new", 3, number=3)
    line.do(commands.DeleteTopic("gone"))
    line.do(commands.AlterTopic("old", {"retention.ms": "9"}))
    line.do(commands.CreatePartitions("old", 2))
    line.do(commands.AskHome(c, GROUP, "h"))
    a = Session(1, 1)
    forget = commands.HomeWrite(GROUP, "forgotten", 1, forget=True)
    line.do(commands.PutHomeState(a, (forget,)))
    line.do(commands.AllotState(c, ("y",)))
    writes = (
        commands.DefinitionWrite("4://r", b"r"),
        commands.DefinitionWrite("3://e", b"e"),
        commands.DefinitionWrite("5://e/queue/r/k", b"bound"),
        commands.DefinitionWrite("4://q", None),
    )
    line.do(commands.PutDefinitions(c, writes))
    line.do(commands.TakeProducerIds(c, 500))
    return line


def test_all_that_came_after_the_copy_comes_back(before: Line) -> None:
    later, store = later_than(before), before.copy()
    answer = store.adopt(later)
    assert answer.missing == ()
    kinds = [Kind.TOPIC, Kind.HOME, Kind.STATE, Kind.DEFINITION]
    for kind in kinds:
        assert dict(store.state.all(kind)) == dict(later.state.all(kind)), kind
    c = store.state.host("c")
    assert c is not None
    assert (c.host_id, c.presence) == (3, Presence.AWAY)
    assert store.state.host("a") == later.state.host("a")
    assert store.adopt(later).entries == 0, "a repeat changes nothing"


def test_numbers_are_not_given_again(before: Line) -> None:
    later, store = later_than(before), before.copy()
    store.adopt(later)
    for counter in (Counter.PRODUCER_ID, Counter.HOME_EPOCH):
        assert store.state.counter(counter) == later.state.counter(counter) + AHEAD[counter]
    d = store.attach("d")
    assert d.host_id == 4
    assert store.do(commands.AllotState(d, ("z",))).state_id not in {
        entry.state_id for entry in (later.state.state_of(("x",)), later.state.state_of(("y",))) if entry
    }
    assert store.do(commands.AskHome(d, GROUP, "another")).epoch > 1_000


def test_what_the_store_changed_itself_stays(before: Line) -> None:
    later, store = later_than(before), before.copy()
    store.topic("mine", number=9)
    store.topic("new", number=10)  # not the one that the hosts know
    store.do(commands.AlterTopic("gone", {"retention.ms": "5"}))
    a = store.attach("a")
    store.do(commands.PutDefinitions(a, (commands.DefinitionWrite("4://q", b"mine", replace=True),)))
    answer = store.adopt(later)
    assert store.state.topic("mine") is not None
    assert store.state.topic("gone") is not None
    new = store.state.topic("new")
    assert new is not None
    assert new.topic_id == uuid.UUID(int=10)
    (text,) = answer.missing
    assert text.startswith("topic new: another topic of this name")
    queue = store.state.definition("4://q")
    assert queue is not None
    assert queue.value == b"mine"
    assert ("not restored", text) in store.events
    assert ("came back", "topic old") in store.events


def test_without_knowing_what_is_its_own_nothing_is_removed(before: Line) -> None:
    later, store = later_than(before), before.copy()
    store.adopt(later, None)
    assert store.state.topic("gone") is not None
    assert store.state.definition("4://q") is not None
    assert store.state.topic("new") is not None


def test_the_higher_epoch_counts_and_losses_stay_named(before: Line) -> None:
    later, store = before.copy(), before.copy()
    topic = before.state.topic("old")
    assert topic is not None
    lost = LostRange(5, 7, 3, 1, 0)
    claim = commands.TakeLead(Session(2, 1), topic.topic_id, 0, 0, 3, promoted=True, lost=lost)
    later.do(commands.Detach(Session(1, 1)))
    later.do(claim)
    home = HomeEntry(GROUP, "g", 2, 7)
    later.state.apply([Change(Kind.HOME, home.key, home)])
    store.do(commands.AlterTopic("old", {"retention.ms": "5"}))
    store.adopt(later)
    merged = store.state.topic("old")
    assert merged is not None
    (partition,) = merged.partitions
    assert (partition.leader, partition.leader_epoch, partition.lost) == (2, 3, (lost,))
    assert merged.config == {"retention.ms": "5"}
    assert store.state.home(GROUP, "g") == home
    store.state.apply([Change(Kind.HOME, home.key, replace(home, epoch=9))])
    store.adopt(later)
    assert store.state.home(GROUP, "g") == replace(home, epoch=9), "an epoch never falls"


def test_no_two_hosts_go_on_in_one_epoch(before: Line) -> None:
    later, store = before.copy(), before.copy()
    key = HomeEntry(GROUP, "h", 1, 1001).key
    later.state.apply([Change(Kind.HOME, key, HomeEntry(GROUP, "h", 1, 1001))])
    store.state.apply([Change(Kind.HOME, key, HomeEntry(GROUP, "h", 2, 1001))])
    store.own.add((Kind.HOME, key))
    store.adopt(later)
    assert store.state.home(GROUP, "h") == HomeEntry(GROUP, "h", 2, 1002)


def test_a_host_whose_id_was_given_to_another_is_named_with_what_it_leads(before: Line) -> None:
    later, store = before.copy(), before.copy()
    later.attach("c")
    later.do(commands.CreateTopic("of-c", uuid.UUID(int=7), 1, {}, ("c",)))
    store.attach("d")  # gets the id of c
    answer = store.adopt(later)
    assert [text.partition(":")[0] for text in answer.missing] == ["host c", "topic of-c"]
    assert store.state.host("c") is None


@pytest.mark.parametrize("instance", ["data of a", "other"])
def test_a_host_that_attached_to_the_older_state_attaches_again(before: Line, instance: str) -> None:
    """Then its directory is compared with what the view knows of it: partitions wait for an older one."""
    later, store = before.copy(), before.copy()
    for run in (2, 3, 4):
        later.attach("a", run=run)
    store.do(commands.Expire("a"))
    session = store.attach("a", instance, run=2)
    store.adopt(later)
    a = store.state.host("a")
    assert isinstance(a, HostEntry)
    assert (a.run, a.presence, a.incarnation > session.incarnation) == (4, Presence.AWAY, True)
    with pytest.raises(TreecastError):
        store.do(commands.Renew(session))
    store.attach("a", instance, run=2)
    old = store.state.topic("old")
    assert old is not None
    assert [one.waits for one in old.partitions] == [True]


def test_the_host_that_holds_the_store_is_as_old_as_the_store(before: Line) -> None:
    """The store's word about its runs does not tell so: that is as old as the directory."""
    runs = (RunMark("a" * 16, 5),)
    for line in (store := before.copy(), later := before.copy()):
        line.do(commands.Attach("a", "data of a", "h:1", "1", 2, runs=runs))
    session = Session(1, store.state.host("a").incarnation)  # type: ignore[union-attr]
    later.topic("new")
    store.do(AdoptView("b", 99, tuple(later.state.entries()), frozenset(store.own), beside="a"))
    with pytest.raises(TreecastError):
        store.do(commands.Renew(session))
    store.do(commands.Attach("a", "data of a", "h:1", "1", 2, runs=runs))
    old, a = store.state.topic("old"), store.state.host("a")
    assert old is not None
    assert a is not None
    assert [one.waits for one in old.partitions] == [True]
    assert (a.presence, a.run, a.lost_run) == (Presence.ATTACHED, 3, 3)
    store.do(commands.Attach("a", "data of a", "h:1", "1", 3, runs=runs))
    assert store.state.host("a").lost_run == 3  # type: ignore[union-attr]


def test_a_host_that_did_not_attach_again_keeps_its_session(before: Line) -> None:
    later, store = before.copy(), before.copy()
    session = later.attach("b")
    store.adopt(later)
    store.do(commands.Renew(session))


def test_limits_hold_and_are_named(before: Line) -> None:
    later = later_than(before)
    store = Line(StateSettings(limits=Limits(topics=2, homes=2, definitions=1, hosts=2, states=1)))
    store.state.apply(before.state.entries())
    answer = store.adopt(later, None)
    assert {text.split(" ")[0] for text in answer.missing} >= {"host", "topic", "definition", "home", "state"}
    assert store.state.size(Kind.TOPIC) == 2


def test_skipped_numbers_stay_in_range(before: Line) -> None:
    store = before.copy()
    store.do(commands.SkipNumbers())
    assert store.attach("d").host_id == 3 + SKIPPED[Counter.HOST_ID]
    for _ in range(2 * LAST_STATE_ID // SKIPPED[Counter.STATE_ID]):
        store.do(commands.SkipNumbers())
        assert store.state.counter(Counter.STATE_ID) <= LAST_STATE_ID


def test_events_of_an_adoption_are_bounded(before: Line) -> None:
    later = before.copy()
    for number in range(1_500):
        later.topic(f"t{number}", number=100 + number)
    store = before.copy()
    decision = step(store.state, AdoptView("b", 99, tuple(later.state.entries()), frozenset()))
    assert len(decision.events) == 1_000
    assert len(stored(decision.events, 0, 0)) == 1_000


# --- random histories


def random_command(rng: random.Random, line: Line) -> Any:
    hosts = line.state.hosts()
    host = rng.choice(hosts) if hosts else None
    session = Session(host.host_id, host.incarnation) if host is not None else Session(0, 0)
    name, id = f"t{rng.randrange(4)}", f"g{rng.randrange(4)}"
    key = f"4://q{rng.randrange(4)}"
    return rng.choice(
        [
            lambda: commands.Attach(
                f"h{rng.randrange(5)}", f"i{rng.randrange(2)}", "h:1", "1", rng.randrange(4)
            ),
            lambda: commands.Detach(session),
            lambda: commands.CreateTopic(name, uuid.UUID(int=rng.getrandbits(100)), rng.randint(1, 3)),
            lambda: commands.DeleteTopic(name),
            lambda: commands.CreatePartitions(name, rng.randint(1, 5)),
            lambda: commands.AlterTopic(name, {"retention.ms": str(rng.randrange(9))}),
            lambda: commands.AskHome(session, GROUP, id),
            lambda: commands.PutHomeState(session, (commands.HomeWrite(GROUP, id, 1, forget=True),)),
            lambda: commands.TakeProducerIds(session, 10),
            lambda: commands.AllotState(session, (name,)),
            lambda: commands.ReleaseState(session, 256 + rng.randrange(6)),
            lambda: commands.PutDefinitions(
                session, (commands.DefinitionWrite(key, rng.choice([None, b"1", b"2"]), replace=True),)
            ),
        ]
    )()


def walk(line: Line, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    for _ in range(steps):
        try:
            line.do(random_command(rng, line))
        except TreecastError:
            continue


@given(st.integers(0, 2**32), st.integers(0, 25), st.integers(0, 25), st.integers(0, 25), st.booleans())
@settings(max_examples=200, deadline=None)
def test_random_histories_are_merged(seed: int, common: int, lost: int, since: int, known: bool) -> None:
    before = Line()
    walk(before, seed, common)
    later, store = before.copy(), before.copy()
    walk(later, seed + 1, lost)
    walk(store, seed + 2, since)
    mine = {(change.kind, change.key): change for change in store.state.entries()}
    own = frozenset(store.own)
    highest = {counter: max(line.state.counter(counter) for line in (later, store)) for counter in AHEAD}
    answer = store.adopt(later, own if known else None)  # checks the invariants
    for counter in AHEAD:
        assert store.state.counter(counter) >= highest[counter]
    for entry in later.state.all(Kind.HOME).values():
        here = store.state.home(entry.kind, entry.id)  # type: ignore[union-attr]
        assert here is None or here.epoch >= entry.epoch  # type: ignore[union-attr]
    if not answer.missing:
        for kind in (Kind.TOPIC, Kind.HOST, Kind.HOME, Kind.DEFINITION):
            assert store.state.all(kind).keys() >= later.state.all(kind).keys()
    for (kind, key), change in mine.items():
        if (kind, key) in own and kind in (Kind.TOPIC, Kind.DEFINITION):
            assert store.state.entry(kind, key) is not None, change
    once = {(change.kind, change.key): change for change in store.state.entries()}
    store.do(AdoptView("b", 99, tuple(later.state.entries()), None))
    twice = {(change.kind, change.key): change for change in store.state.entries()}
    differing = {
        kind for kind, key in once.keys() | twice.keys() if once.get((kind, key)) != twice.get((kind, key))
    }
    assert differing <= {Kind.HOST}, "a repeat only ends sessions"
