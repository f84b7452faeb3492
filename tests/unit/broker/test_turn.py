"""The turn over an edge that acts only when told: the order of its steps, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from treecast.middleware.broker.turn import TURN_TABLE, ImpossibleTurn, Turn, TurnEvent, TurnState
from treecast.middleware.storage.block_log import SyncTicket
from treecast.middleware.storage.block_sync import Forced
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.removals import Removals
from treecast.middleware.storage.settings import FsyncPolicy

TICKET = SyncTicket(Disk(), "", Forced(), Removals(Disk()), [], [], 0, ())  # the edge runs none


class Script:
    """Records events. It is the edge, a store, the departures and a speaker at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.calls: list[Callable[[], None]] = []
        self.syncs: list[Callable[[list[str]], None]] = []
        self.error = ""
        self.full = False  # the store refuses writes
        self.opens = True  # the file to be synced can be opened
        self.unsynced = self.rolled = False
        self.waits = 0  # replies that wait
        self.gathered = 0
        self.said = 0
        self.failing = False
        self.pending: tuple[str, ...] = ("change",)
        self.waiting = self.placed = True  # something departs with each turn
        self.congested = False

    # the edge

    def soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def force(self, tickets: Sequence[Any], then: Callable[[list[str]], None]) -> None:
        self.done.append("force")
        self.syncs.append(then)

    def refused(self, error: str) -> None:
        self.done.append(f"refused: {error}")

    def failed(self, error: Exception) -> None:
        self.done.append(f"failed: {error}")

    # the store

    def flush(self) -> bool:
        self.done.append("store")
        if self.full:
            self.error = "full"
        else:
            self.unsynced = True
        return not self.full

    def begin_sync(self) -> tuple[SyncTicket, int]:
        self.unsynced = False
        if not self.opens:
            raise OSError(24, "too many open files")
        return TICKET, 7

    def end_sync(self, segment: int, error: str) -> None:
        self.done.append(f"forced {segment} {error}".strip())
        self.unsynced = bool(error)

    # the departures

    def place(self) -> None:
        self.done.append("place")

    def send(self) -> None:
        self.done.append("send")

    # the speaker

    def gather(self) -> None:
        self.gathered, self.waits = self.waits, 0

    def say(self) -> None:
        self.said += self.gathered
        self.gathered = 0
        self.done.append("say")

    def refuse(self) -> None:
        self.gathered = 0
        self.done.append("refuse")

    # the loop

    def loop(self) -> list[str]:
        """Runs one pass. Returns the events since the last one."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()
        return self.since()

    def since(self) -> list[str]:
        done, self.done = self.done, []
        return done

    def disk(self, error: str = "") -> list[str]:
        """Ends the oldest sync. Returns the events since the last pass."""
        self.syncs.pop(0)([error])
        return self.since()


def turn_of(script: Script, policy: FsyncPolicy = FsyncPolicy.BATCH) -> Turn:
    turn = Turn(policy, script)
    turn.add_store(script)
    turn.add_departures(script)
    turn.add_speaker(script)
    return turn


def test_every_pair_of_state_and_event_has_its_entry() -> None:
    assert set(TURN_TABLE) == {(state, event) for state in TurnState for event in TurnEvent}


@pytest.mark.parametrize("policy", [FsyncPolicy.NEVER, FsyncPolicy.INTERVAL])
def test_all_who_ask_in_a_pass_of_the_loop_share_its_end(policy: FsyncPolicy) -> None:
    script = Script()
    turn = turn_of(script, policy)
    for _ in range(3):
        turn.ask()
        script.waits += 1
    assert script.since() == []
    assert script.loop() == ["place", "store", "send", "say"]
    assert script.said == 3
    assert script.loop() == []
    turn.ask()
    assert script.loop() == ["place", "store", "send", "say"]


def test_with_fsync_per_batch_nothing_leaves_and_nothing_is_said_before_the_disk_has_it() -> None:
    script = Script()
    turn = turn_of(script)
    turn.ask()
    script.waits = 1
    assert script.loop() == ["place", "store", "force"]
    assert script.disk() == ["forced 7", "send", "say"]
    assert turn.state is TurnState.RESTING


def test_what_is_asked_for_while_the_disk_is_waited_for_shares_the_next_sync() -> None:
    script = Script()
    turn = turn_of(script)
    turn.ask()
    script.waits = 1
    script.loop()
    for _ in range(5):
        turn.ask()
        script.waits += 1
        assert script.loop() == []
    assert script.disk() == ["forced 7", "send", "say", "place", "store", "force"]
    assert script.said == 1  # the first sync does not cover later replies
    assert script.disk() == ["forced 7", "send", "say"]
    assert script.said == 6


def test_what_is_asked_for_while_a_turn_ends_comes_with_the_next() -> None:
    script = Script()
    turn = turn_of(script, FsyncPolicy.NEVER)
    say = script.say

    def says_more() -> None:
        say()
        if script.said == 1:
            script.waits = 1
            turn.ask()

    script.say = says_more  # type: ignore[method-assign]
    script.waits = 1
    turn.ask()
    script.loop()
    assert script.said == 1
    script.loop()
    assert script.said == 2


def test_a_store_that_refuses_lets_nothing_leave_until_it_takes_it() -> None:
    script = Script()
    turn = turn_of(script)
    script.full, script.waits = True, 1
    turn.ask()
    assert script.loop() == ["place", "store", "refused: full", "refuse"]
    assert script.said == 0
    script.full = False
    turn.look()
    assert script.since() == ["place", "store", "force"]
    assert script.disk() == ["forced 7", "send", "say"]


@pytest.mark.parametrize("opens", [True, False])
def test_a_disk_that_refuses_the_sync_lets_nothing_be_said_and_is_asked_again(opens: bool) -> None:
    script = Script()
    turn = turn_of(script)
    script.opens, script.waits = opens, 1
    turn.ask()
    done = script.loop()
    if opens:
        done += script.disk("broken")
    assert done[-1] == "refuse"
    assert "send" not in done
    assert script.unsynced
    script.opens = True
    turn.look()
    assert script.since() == ["place", "store", "force"]
    assert script.disk() == ["forced 7", "send", "say"]
    assert script.said == 0


def test_a_look_while_somebody_has_asked_changes_nothing() -> None:
    script = Script()
    turn = turn_of(script)
    turn.ask()
    turn.look()
    assert script.since() == []
    script.loop()
    turn.look()  # while the disk syncs
    assert script.since() == []


def test_with_fsync_per_interval_the_disk_is_forced_while_nobody_waits() -> None:
    script = Script()
    turn = turn_of(script, FsyncPolicy.INTERVAL)
    turn.ask()
    script.loop()
    turn.force()
    turn.force()  # only one sync at a time
    assert script.since() == ["force"]
    script.waits = 1
    turn.ask()
    assert script.loop() == ["place", "store", "send", "say"]
    assert script.disk("broken") == ["forced 7 broken", "refused: broken"]
    turn.force()
    assert script.disk() == ["force", "forced 7"]
    turn.force()
    assert script.since() == []


def test_with_never_only_what_the_kernel_must_not_order_is_forced() -> None:
    script = Script()
    turn = turn_of(script, FsyncPolicy.NEVER)
    turn.ask()
    script.loop()
    turn.force()
    assert script.since() == []
    script.rolled = True
    turn.force()
    assert script.since() == ["force"]
    script.disk()
    script.rolled = False
    turn.force()
    assert script.since() == []


def test_several_stores_are_one_turn_and_one_that_refuses_speaks_for_all() -> None:
    one, other = Script(), Script()
    turn = turn_of(one)
    turn.add_store(other)
    other.full, one.waits = True, 1
    turn.ask()
    assert one.loop() == ["place", "store", "refused: full", "refuse"]
    assert other.since() == ["store"]
    one.full, one.waits = True, 1
    turn.ask()
    assert one.loop() == ["place", "store", "refused: full", "refuse"]
    assert other.since() == []  # it may refer to data that the first store lacks
    one.full = other.full = False
    one.waits = 1
    turn.ask()
    assert one.loop() == ["place", "store", "force"]
    one.syncs.pop()(["", "broken"])
    assert one.since() == ["forced 7", "refused: broken", "refuse"]
    assert (one.unsynced, other.unsynced) == (False, True)


def test_a_store_without_changes_is_not_asked_unless_it_fails() -> None:
    script = Script()
    turn = turn_of(script, FsyncPolicy.NEVER)
    script.pending = ()
    turn.ask()
    assert script.loop() == ["place", "send", "say"]
    script.failing = True
    turn.ask()
    assert script.loop() == ["place", "store", "send", "say"]


def test_congestion_of_one_is_that_of_the_turn() -> None:
    one, other = Script(), Script()
    turn = turn_of(one)
    turn.add_departures(other)
    assert not turn.congested
    other.congested = True
    assert turn.congested
    turn.remove_departures(other)
    assert not turn.congested


def test_who_leaves_takes_no_part_any_more() -> None:
    script = Script()
    turn = turn_of(script)
    turn.remove_departures(script)
    turn.remove_speaker(script)
    turn.remove_store(script)
    turn.ask()
    assert script.loop() == []
    assert turn.state is TurnState.RESTING


def test_a_disk_that_nobody_waits_for_cannot_have_answered() -> None:
    with pytest.raises(ImpossibleTurn):
        turn_of(Script())._forced("")


@pytest.mark.parametrize("step", ["gather", "say", "refuse"])
def test_a_speaker_that_raises_does_not_silence_the_others(step: str) -> None:
    script, broken = Script(), Script()
    turn = Turn(FsyncPolicy.NEVER, script)
    turn.add_store(script)
    turn.add_speaker(broken)
    turn.add_speaker(script)

    def raises() -> None:
        raise RuntimeError(step)

    setattr(broken, step, raises)
    script.full = step == "refuse"
    for _ in range(2):
        script.waits = 1
        turn.ask()
        assert f"failed: {step}" in script.loop()
    assert script.said == (0 if step == "refuse" else 2)
