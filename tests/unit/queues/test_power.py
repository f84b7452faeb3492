"""A power loss at the log of queues, on the stores that the daemon's turn writes and forces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.power import Power
from tests.unit.queues.site import Site

from treecast.middleware.broker.turn import Turn
from treecast.middleware.storage.block_log import SyncTicket
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.sync_thread import Then, run_all


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


class Edge:
    """Implements `turn.Edge`, with a disk that answers at once."""

    def soon(self, call: object) -> None: ...

    def force(self, tickets: Sequence[SyncTicket], then: Then) -> None:
        then(run_all(tickets))

    def refused(self, error: str) -> None:
        raise AssertionError(error)

    def failed(self, error: Exception) -> None:
        raise error


def turn_of(site: Site, policy: FsyncPolicy) -> Turn:
    turn = Turn(policy, Edge())  # type: ignore[arg-type]
    turn.add_store(site.store)
    return turn


def housed(folder: Path, **options: int) -> Site:
    """A site whose directory is in one that is on the disk, as the data directory is."""
    (folder / "data").mkdir()
    return Site(folder / "data" / "queues", syncs=True, **options)


def left_by(power: Power, folder: Path) -> Site:
    power.note(folder)
    left = power.lose(folder / "data", folder / "left")
    return Site(left / "queues", syncs=True)


@pytest.mark.parametrize("policy", [FsyncPolicy.BATCH, FsyncPolicy.INTERVAL])
def test_definitions_and_messages(tmp_path: Path, power: Power, policy: FsyncPolicy) -> None:
    site = housed(tmp_path)
    turn = turn_of(site, policy)
    site.queue("q")
    site.publish(b"a", b"b")
    turn.end()  # a client is answered with its end
    if policy is FsyncPolicy.INTERVAL:
        turn.force()
    site.publish(b"not answered")
    assert site.store.flush()
    again = left_by(power, tmp_path)
    assert [body for body, _ in again.held("q")] == [b"a", b"b"]
    again.store.close()
    site.store.close()


def test_never_forces_full_segments_so_that_a_purge_frees_the_disk(tmp_path: Path, power: Power) -> None:
    site = housed(tmp_path, segment_bytes=2000)
    turn = turn_of(site, FsyncPolicy.NEVER)
    site.queue("q")
    for number in range(100):
        site.publish(b"%d" % number * 50)
        turn.end()
    assert len(site.store.segments) > 3
    site.vhost.queues[b"q"].purge()
    for _ in range(3):
        turn.end()
        turn.force()
    assert len(site.store.segments) <= 2
    assert not site.store.rolled
    site.store.close()


def test_never_drops_no_segment_before_what_replaces_it_is_on_the_disk(tmp_path: Path, power: Power) -> None:
    site = housed(tmp_path, segment_bytes=2000)
    turn = turn_of(site, FsyncPolicy.NEVER)
    site.queue("kept")
    site.publish(b"old", key="kept")
    site.queue("q")
    turn.end()
    for number in range(100):
        site.publish(b"%d" % number * 50)
        turn.end()
        if number % 10 == 9:
            site.vhost.queues[b"q"].purge()
            turn.end()
            turn.force()
    again = left_by(power, tmp_path)
    assert [body for body, _ in again.held("kept")] == [b"old"]
    again.store.close()
    site.store.close()
