from collections.abc import Mapping

import pytest
from bench.core.measure import THROUGHPUT, Workload
from bench.core.peer import Peer
from bench.core.process import Memory
from bench.core.quiet import Quiet
from bench.core.rounds import SERVER, Rounds


class RecordedPeer(Peer):
    """Records the calls that it gets."""

    broken = False

    def __init__(self, name: str, journal: list[str], *, is_floor: bool = False) -> None:
        self.name, self._journal, self.is_floor = name, journal, is_floor

    def prepare(self) -> None:
        self._journal.append(f"prepare {self.name}")

    def start(self) -> float:
        self._journal.append(f"start {self.name}")
        if self.broken:
            raise RuntimeError("no such flag")
        return 1.5

    def stop(self) -> None:
        self._journal.append(f"stop {self.name}")

    def pids(self) -> list[int]:
        return []

    def settings(self) -> Mapping[str, str]:
        return {}

    def memory(self) -> Memory:
        return Memory(3 << 20, 2 << 20, 1 << 20)


class Counting(Workload):
    def __init__(self, name: str, *, floor: bool = False, fails: bool = False, ended: int = 0) -> None:
        """`ended`: the round in which the user interrupts."""
        self.name, self.floor, self._fails, self._ended = name, floor, fails, ended

    def run(self, peer: Peer, number: int):
        if self._fails:
            raise RuntimeError("no answer")
        if number == self._ended and peer.name == "b":
            raise KeyboardInterrupt
        return {THROUGHPUT: 10.0 * number}


@pytest.fixture
def journal(monkeypatch) -> list[str]:
    monkeypatch.setattr("os.sync", lambda: None)
    return []


def rounds(peers, workloads, count, **options):
    options.setdefault("quiet", Quiet(load=lambda: 0.0, spinners=0))
    return Rounds(peers, workloads, count, settle=0, progress=lambda _: None, **options)


def test_peers_take_turns_and_the_order_alternates(journal):
    run = rounds([RecordedPeer("a", journal), RecordedPeer("b", journal)], [], 3)
    run.run()
    assert journal[:2] == ["prepare a", "prepare b"]
    started = [entry.removeprefix("start ") for entry in journal if entry.startswith("start")]
    assert started == ["a", "b", "b", "a", "a", "b"]
    assert [entry.split()[0] for entry in journal[2:]] == ["start", "stop"] * 6


@pytest.mark.parametrize("judged", [True, False])
def test_ratios_of_start_up_and_memory_are_asked_only_where_they_are_judged(journal, judged):
    run = rounds([RecordedPeer("a", journal)], [], 1, judged=judged)
    run.run()
    targets = {sample.metric.name: sample.metric.target for sample in run.samples}
    assert targets.pop("of it anonymous") is None
    assert [target is not None for target in targets.values()] == [judged] * 3


def test_every_value_is_kept_with_its_round(journal):
    run = rounds([RecordedPeer("a", journal)], [Counting("load")], 2)
    run.run()
    assert [s.value for s in run.samples if s.workload == "load"] == [10.0, 20.0]
    server = {(s.round, s.metric.name): s.value for s in run.samples if s.workload == SERVER}
    assert server[1, "start-up"] == 1.5
    assert server[2, "resident, idle"] == server[2, "resident, after load"] == 3
    assert server[2, "of it anonymous"] == 2


def test_floor_serves_only_what_it_can(journal):
    run = rounds(
        [RecordedPeer("floor", journal, is_floor=True)], [Counting("raw", floor=True), Counting("java")], 1
    )
    run.run()
    assert [s.workload for s in run.samples] == ["raw"]


def test_a_failure_costs_one_sample_and_is_told(journal):
    run = rounds([RecordedPeer("a", journal)], [Counting("bad", fails=True), Counting("good")], 1)
    run.run()
    assert run.failures == ["a, round 1, bad: no answer"]
    assert "good" in {s.workload for s in run.samples}
    assert journal[-1] == "stop a"


def test_a_peer_that_does_not_start_costs_its_turn_only(journal):
    broken, sound = RecordedPeer("a", journal), RecordedPeer("b", journal)
    broken.broken = True
    run = rounds([broken, sound], [Counting("load")], 1)
    run.run()
    assert run.failures == ["a, round 1, does not start: no such flag"]
    assert {s.peer for s in run.samples} == {"b"}


def test_who_ends_it_early_has_the_rounds_before(journal):
    peers = [RecordedPeer("b", journal), RecordedPeer("a", journal)]
    run = rounds(peers, [Counting("load", ended=2)], 3)
    run.run()
    assert {s.round for s in run.samples} == {1}
    assert run.failures == ["ended in round 2 of 3: the figures are of those before"]
    assert journal[-1] == "stop b"


def test_who_ends_it_in_the_first_round_has_nothing(journal):
    run = rounds([RecordedPeer("b", journal)], [Counting("load", ended=1)], 3)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert journal[-1] == "stop b"


class Missed(Counting):
    """Misses its rate in these rounds, at the peer `b`."""

    def __init__(self, name: str, *rounds: int) -> None:
        super().__init__(name)
        self._rounds = rounds

    def run(self, peer: Peer, number: int):
        return {THROUGHPUT: -1.0 if peer.name == "b" and number in self._rounds else 10.0 * number}

    def void(self, values) -> str:
        return "too slow" if values[THROUGHPUT] < 0 else ""


def test_each_workload_may_get_servers_of_its_own_in_an_order_that_stays(journal):
    peers = [RecordedPeer("a", journal), RecordedPeer("b", journal)]
    run = rounds(peers, [Counting("one"), Counting("two")], 2, apart=True, mirrored=False)
    run.run()
    assert [entry.removeprefix("start ") for entry in journal if entry.startswith("start")] == ["a", "b"] * 4


def test_a_round_in_which_one_side_misses_its_rate_is_void_for_both(journal):
    peers = [RecordedPeer("a", journal), RecordedPeer("b", journal)]
    run = rounds(peers, [Missed("paced", 2), Counting("free")], 3)
    run.run()
    assert {(s.peer, s.round) for s in run.samples if s.workload == "paced"} == {
        (peer, number) for peer in "ab" for number in (1, 3)
    }
    assert {s.round for s in run.samples if s.workload == "free"} == {1, 2, 3}
    assert {(s.workload, s.round) for s in run.voided} == {("paced", 2)}
    assert run.notes == ["void: round 2, paced: b: too slow"]
    assert not run.unproven


def test_a_round_that_begins_on_a_busy_machine_is_void(journal):
    loads = iter([0.2, 1.5])
    run = rounds(
        [RecordedPeer("a", journal)],
        [Counting("load")],
        2,
        quiet=Quiet(load=lambda: next(loads), spinners=0),
    )
    run.run()
    assert [s.round for s in run.samples if s.workload == "load"] == [1]
    assert run.notes == ["void: round 2, load: a: the load average was 1.50 at its start, over 1"]


def test_values_of_void_rounds_alone_are_kept_without_a_verdict(journal):
    run = rounds([RecordedPeer("b", journal)], [Missed("paced", 1)], 1)
    run.run()
    assert [s.value for s in run.samples if s.workload == "paced"] == [-1.0]
    assert run.unproven == {"paced"}
    assert run.notes[-1] == "no round of paced is valid: its figures compare nothing"
