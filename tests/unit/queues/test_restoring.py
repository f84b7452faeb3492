"""Stored queues are restored after a kill, in the state of the last write."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from tests.unit.queues.host import Headers, Taker, bodies_of, run
from tests.unit.queues.site import Site
from tests.unit.stores import flushed

from treecast.middleware.broker.queues import (
    Destination,
    Part,
    Policy,
    Run,
    by_content,
    entries,
)
from treecast.middleware.broker.queues.entries import enqueued, ranged, returned, walk
from treecast.middleware.broker.queues.exchange import binding_of
from treecast.middleware.broker.queues.marks import Ranges
from treecast.middleware.broker.queues.message import messages
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.disk import Disk


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_persistent_messages_of_durable_queues_are_there_again(site: Site) -> None:
    site.queue()
    site.publish(b"one", b"two")
    site.publish(b"gone", persistent=False)
    site.publish(b"three")
    site.store.flush()
    site.publish(b"not written")
    site.kill()
    assert site.restored == 3
    assert site.held() == [(b"one", False), (b"two", False), (b"three", False)]


def test_changes_are_pending_until_they_are_written(tmp_path: Path) -> None:
    site = Site(tmp_path)
    changes: list[Callable[[], object]] = [
        site.queue,
        lambda: site.publish(b"one", b"two"),
        lambda: site.vhost.consume(site.vhost.queues[b"q"], taker, site.now),  # handed out
        lambda: site.vhost.queues[b"q"].settle(taker.parts[0], 0, 1, taker),
        lambda: site.vhost.queues[b"q"].requeue(taker.parts[0], 1, 1, taker, site.now, failed=True),
        lambda: site.journal.recorder("/").noted("taken", b"7", {"run": 1, "number": 2}),
        lambda: site.vhost.queue_definitions.delete(b"q", None),
    ]
    taker = Taker("t")
    for change in changes:
        assert flushed(site.store)
        assert not any(site.store.pending)
        change()
        assert any(site.store.pending)
    site.store.close()


def test_bindings_of_a_deleted_exchange_do_not_come_back_with_its_name(site: Site) -> None:
    site.queue()
    exchanges = site.vhost.exchange_definitions
    exchanges.declare(b"x", "direct")
    exchanges.declare(b"y", "fanout")
    site.vhost.bindings.bind(b"x", Destination(b"q", False), b"old")
    site.vhost.bindings.bind(b"x", Destination(b"y", True), b"old")
    site.vhost.bindings.bind(b"y", Destination(b"x", True), b"")
    exchanges.delete(b"x")
    assert not site.journal.bound  # also if nobody declares it again: the log does not grow by them
    exchanges.declare(b"x", "direct")
    site.store.flush()
    site.kill()
    assert site.vhost.exchanges[b"x"].bindings == {}
    assert site.vhost.exchanges[b"y"].bindings == {}


def test_bindings_of_a_queue_that_moved_are_stored_where_it_is(site: Site) -> None:
    queue = site.queue()
    site.vhost.bindings.bind(b"amq.direct", Destination(b"q", False), b"k")
    site.vhost.displace(queue, site.now)
    assert not site.journal.bound
    assert len(site.vhost.exchanges[b"amq.direct"].bindings) == 1


class Choked(Disk):
    """Opens `opens` more files."""

    opens = 1_000_000

    def open(self, path: str, *, create: bool = False) -> int:
        if self.opens == 0:
            raise OSError(24, "Too many open files")
        self.opens -= 1
        return super().open(path, create=create)


def test_what_cannot_be_read_as_a_queue_moves_is_there_after_a_restart(tmp_path: Path) -> None:
    disk = Choked()
    site = Site(tmp_path, disk)
    queue = site.queue()
    bodies = [b"%03d" % number + bytes(100) for number in range(60)]
    for body in bodies:  # in many segments
        site.publish(body)
        site.store.flush()
    disk.opens = 1
    moved = [body for one in site.vhost.displace(queue, site.now) for _, body in messages(one.data)]
    assert 0 < len(moved) < len(bodies)
    assert queue.deleted
    disk.opens = 1_000_000
    site.store.flush()
    site.kill()
    assert moved + [body for body, _ in site.held()] == bodies


def test_what_the_disk_does_not_read_for_a_moment_is_delivered_later(tmp_path: Path) -> None:
    disk = Choked()
    site = Site(tmp_path, disk)
    queue = site.queue()
    bodies = [b"%03d" % number + bytes(100) for number in range(60)]
    for body in bodies:
        site.publish(body)
        site.store.flush()
    got = list[bytes]()
    while queue.ready:
        disk.opens = 0
        try:
            part = queue.get(site.now, no_ack=True)
        except TreecastError:
            disk.opens = 1_000_000
            part = queue.get(site.now, no_ack=True)
        assert part is not None
        got += bodies_of(part)
    assert got == bodies


def test_filters_of_bindings_are_there_again(site: Site) -> None:
    site.queue()
    site.vhost.exchange_definitions.declare(b"x", "topic")
    site.vhost.bindings.bind(b"x", Destination(b"q", False), b"k", {"x-treecast-filter": "n > 5"})
    site.store.flush()
    site.kill()
    assert by_content(site.vhost.exchanges, b"x")


def test_what_was_handed_out_is_redelivered_and_what_was_settled_is_gone(site: Site) -> None:
    queue = site.queue()
    site.publish(*[b"%d" % number for number in range(10)])
    taker = Taker("t", 6)
    site.vhost.consume(queue, taker, site.now)
    (part,) = taker.parts
    queue.settle(part, 1, 2, taker)
    site.store.flush()
    site.kill()
    left = [(b"%d" % number, number < 6) for number in range(10) if number not in (1, 2)]
    assert site.held() == left


def test_failed_deliveries_are_counted_over_a_kill(site: Site) -> None:
    site.queue(queue_type="quorum", delivery_limit=2)
    site.publish(b"poison")
    for _ in range(3):
        queue = site.vhost.queues[b"q"]
        part = queue.get(site.now, no_ack=False)
        assert part is not None
        queue.requeue(part, 0, 1, None, site.now, failed=True)
        site.store.flush()
        site.kill()
    assert site.held() == []


FIELDS = {
    "decimal": Decimal("1.50"),
    "bytes": bytearray(b"\xff\x00"),
    "string": b"\xff",
    "text bytes": bytearray(b"text"),
    "time": datetime(2024, 1, 1, 12, 0, 0, 123000, UTC),
    "number": -(1 << 63),
    "float": 1.0,
    "whole": 1,
    "truth": True,
    "nothing": None,
    "nested": [{"d": Decimal(0), "x": [bytearray(b"")]}, 2, "", {}, []],
}


def test_arguments_of_all_types_are_there_again(site: Site) -> None:
    destination = Destination(b"q", False)
    site.vhost.exchange_definitions.declare(b"h", "headers", arguments=FIELDS)
    site.vhost.queue_definitions.declare(b"q", arguments=FIELDS)
    for name, value in FIELDS.items():
        site.vhost.bindings.bind(b"h", destination, name.encode(), {name: value})
    site.store.flush()
    for _ in range(2):
        site.kill()
        assert repr(site.vhost.exchanges[b"h"].arguments) == repr(FIELDS)
        assert repr(site.vhost.queues[b"q"].asked) == repr(FIELDS)
        site.vhost.queue_definitions.declare(b"q", arguments=FIELDS)
        for name, value in FIELDS.items():
            arguments = {name: value}
            site.vhost.router.reader = Headers({b"m": arguments})
            assert b"q" in [queue.name for queue in site.vhost.route(run(b"m", exchange="h"))], name
            site.vhost.bindings.unbind(b"h", destination, name.encode(), arguments)
            assert (
                binding_of(destination, name.encode(), arguments) not in site.vhost.exchanges[b"h"].bindings
            )
            site.vhost.bindings.bind(b"h", destination, name.encode(), arguments)
    assert len(site.vhost.exchanges[b"h"].bindings) == len(FIELDS)


def test_arguments_that_were_stored_as_plain_msgpack_are_there_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "encoded", msgspec.msgpack.encode)
    site.vhost.exchange_definitions.declare(b"h", "headers", arguments=FIELDS)
    site.vhost.queue_definitions.declare(b"q", arguments=FIELDS)
    site.vhost.bindings.bind(b"h", Destination(b"q", False), b"k", FIELDS)
    site.store.flush()
    monkeypatch.undo()
    left = {**FIELDS, "decimal": "1.50", "bytes": b"\xff\x00"}  # what the form did not tell is lost
    left["nested"] = [{"d": "0", "x": [bytearray(b"")]}, 2, "", {}, []]
    for _ in range(2):
        site.kill()
        assert repr(site.vhost.exchanges[b"h"].arguments) == repr(left)
        assert repr(site.vhost.queues[b"q"].asked) == repr(left)
        assert [repr(one) for one in site.vhost.exchanges[b"h"].bindings.values()] == [repr(left)]
        site.vhost.bindings.bind(b"h", Destination(b"q", False), b"more", FIELDS)
        site.vhost.bindings.unbind(b"h", Destination(b"q", False), b"more", FIELDS)
        site.store.flush()


def test_definitions_are_there_again(site: Site) -> None:
    site.vhost.exchange_definitions.declare(b"e", "topic", arguments={"alternate-exchange": "amq.fanout"})
    site.vhost.exchange_definitions.declare(b"gone", "direct")
    site.queue(max_length=3)
    site.vhost.queue_definitions.declare(b"", generated=b"amq.gen-1", now=site.now)
    site.vhost.queue_definitions.declare(b"transient", exclusive=True, owner=site, now=site.now)
    site.vhost.bindings.bind(b"e", Destination(b"q", False), b"a.#", {"k": [1, True, "x"]})
    site.vhost.bindings.bind(
        b"amq.headers", Destination(b"amq.gen-1", False), b"", {"x-match": "any", "n": 1}
    )
    site.vhost.bindings.bind(b"gone", Destination(b"q", False), b"k")
    site.vhost.exchange_definitions.delete(b"gone")
    site.store.flush()
    for _ in range(2):
        site.kill()
        assert site.vhost.exchanges[b"e"].alternate == b"amq.fanout"
        assert b"gone" not in site.vhost.exchanges
        assert set(site.vhost.queues) == {b"q", b"amq.gen-1"}
        assert site.vhost.queues[b"q"].arguments.max_length == 3
        assert [source for source, _ in site.vhost.bindings.of(Destination(b"q", False))] == [b"e"]
        assert len(site.vhost.exchanges[b"amq.headers"].bindings) == 1
    site.queue(max_length=3)  # with the same arguments
    site.publish(b"by topic", key="a.b", exchange="e")
    site.store.flush()
    site.kill()
    assert site.held() == [(b"by topic", False)]


def test_of_notes_the_last_one_is_there_again(site: Site) -> None:
    noted = site.vhost.ledger.recorder.noted
    assert site.store.only_notes
    for number in range(100):
        noted("taken", b"2", {"run": 1, "number": number})
    noted("taken", b"3", {"run": 1, "number": 7})
    assert site.store.only_notes
    size = site.store.size
    assert site.store.flush()
    assert site.store.size - size < 200  # two entries, not a hundred
    site.kill()
    found = {
        one.name: one.definition["number"] for one in site.journal.declared.values() if one.kind == "taken"
    }
    assert found == {b"2": 99, b"3": 7}


def test_messages_are_more_than_notes(site: Site) -> None:
    queue = site.queue()
    site.store.flush()
    site.publish(b"transient", persistent=False)
    assert site.store.only_notes
    site.publish(b"persistent")
    assert not site.store.only_notes
    site.store.flush()
    part = queue.get(site.now, no_ack=True)
    assert part is not None
    assert site.store.only_notes  # nothing is said of the transient message
    part = queue.get(site.now, no_ack=False)
    assert part is not None
    assert not site.store.only_notes  # it was handed out
    site.store.flush()
    queue.settle(part, 0, 1, None)
    assert not site.store.only_notes


def test_policies_are_there_again(site: Site) -> None:
    site.queue()
    policy = Policy("p", "^q$", {"max-length": 2}, 3, "queues")
    site.vhost.policies.set(policy, site.now)
    site.vhost.policies.set(Policy("o", "^q$", {"max-length": 1}), site.now, operator=True)
    site.vhost.policies.set(Policy("gone", ".*", {"max-length": 0}, 9), site.now)
    site.vhost.policies.delete("gone", site.now)
    site.store.flush()
    site.kill()
    assert site.vhost.policies.users == {"p": policy}
    assert list(site.vhost.policies.operators) == ["o"]
    assert site.vhost.queues[b"q"].arguments.max_length == 1


def test_a_queue_of_the_same_name_does_not_have_what_was_in_the_one_before(site: Site) -> None:
    site.queue()
    site.queue("other")
    site.publish(b"old")
    site.publish(b"kept", key="other")
    site.vhost.queue_definitions.delete(b"q", None)
    site.queue()
    site.publish(b"new")
    site.store.flush()
    site.kill()
    assert site.held() == [(b"new", False)]
    assert site.held("other") == [(b"kept", False)]


def test_times_to_live_go_on(site: Site) -> None:
    site.queue(message_ttl=10_000)
    site.publish(b"first")
    site.now += 6
    site.publish(b"second")
    site.store.flush()
    site.kill()
    site.now += 5
    site.vhost.tick(site.now)
    assert site.vhost.queues[b"q"].ready == 2 - 1
    assert site.held() == [(b"second", False)]


def test_a_body_is_on_the_disk_once_for_all_queues(site: Site) -> None:
    for number in range(20):
        site.queue(f"q{number}")
        site.vhost.bindings.bind(b"amq.fanout", Destination(b"q%d" % number, False), b"")
    before = site.store.size
    site.publish(bytes(10_000), exchange="amq.fanout")
    site.store.flush()
    assert site.store.size - before < 2 * 10_000
    site.kill()
    assert site.restored == 20


def test_a_message_that_stays_keeps_its_segment_and_what_is_said_of_it(site: Site) -> None:
    """Its neighbours are settled, in segments that are removed."""
    queue = site.queue()
    site.publish(*[b"%d" % number for number in range(10)])
    kept = queue.get(site.now, no_ack=False)
    assert kept is not None
    site.store.flush()
    neighbours = [queue.get(site.now, no_ack=False) for _ in range(9)]
    for part in neighbours:
        assert part is not None
        queue.settle(part, 0, 1, None)
    site.store.flush()
    for _ in range(100):
        site.publish(bytes(500))
        part = queue.get(site.now, no_ack=True)
        site.store.flush()
    assert len(site.store.segments) <= 4
    site.kill()
    assert site.held() == [(b"0", True)]


class Model:
    """The messages of each queue: bodies in order, each with whether it was delivered."""

    def __init__(self) -> None:
        self.queues: dict[str, list[list[object]]] = {}

    def find(self, queue: str, body: bytes) -> list[object]:
        return next(one for one in self.queues[queue] if one[0] == body)


class Program:
    """Random steps at a site, and lists of what its queues hold: now, and as of the last write."""

    def __init__(self, folder: Path, seed: int, *, syncs: bool) -> None:
        self.rng = random.Random(seed)
        self.site = Site(folder, syncs=syncs)
        self.model, self.written = Model(), Model()
        self.given: list[tuple[str, Part, bytes]] = []
        self._syncs = syncs
        self._serial = 0

    def step(self) -> None:
        rng, names = self.rng, list(self.model.queues)
        name = rng.choice(names) if names else ""
        step = rng.randrange(14)
        if step == 0 and len(names) < 4:
            self.declare(names)
        elif step == 1 and names and rng.random() < 0.2:
            self.delete(name)
        elif step < 6 and names:
            self.publish(name)
        elif step < 8 and names:
            self.get(name)
        elif step < 10 and self.given:
            self.settle()
        elif step < 13:
            self.write()
        elif rng.random() < 0.5:
            self.kill()

    def declare(self, names: list[str]) -> None:
        name = f"q{self.rng.randrange(6)}"
        if name in self.model.queues:
            return
        arguments = {}
        if names:
            arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": self.rng.choice(names)}
        self.site.queue(name, **arguments)
        self.model.queues[name] = []

    def delete(self, name: str) -> None:
        self.site.vhost.queue_definitions.delete(name.encode(), None)
        del self.model.queues[name]
        self.given = [one for one in self.given if one[0] != name]

    def publish(self, name: str) -> None:
        bodies = [b"%d" % (self._serial + number) for number in range(self.rng.randrange(1, 6))]
        self._serial += len(bodies)
        self.site.publish(*bodies, key=name)
        self.model.queues[name] += [[body, False] for body in bodies]

    def get(self, name: str) -> None:
        part = self.site.vhost.queues[name.encode()].get(self.site.now, no_ack=False)
        if part is not None:
            self.given.append((name, part, bodies_of(part)[0]))
            self.model.find(name, bodies_of(part)[0])[1] = True

    def settle(self) -> None:
        """Acknowledges, requeues or rejects one that was given."""
        site, queues = self.site, self.model.queues
        at, part, body = self.given.pop(self.rng.randrange(len(self.given)))
        queue = site.vhost.queues[at.encode()]
        one = self.model.find(at, body)
        how = self.rng.randrange(3)
        if how == 0:
            queue.settle(part, 0, 1, None)
            queues[at].remove(one)
        elif how == 1:
            queue.requeue(part, 0, 1, None, site.now, failed=False)
        else:
            queue.reject(part, 0, 1, None, site.now)
            site.vhost.settle_up(site.now)
            queues[at].remove(one)
            target = queue.arguments.dead_letter_key
            if target is not None and target.decode() in queues:
                queues[target.decode()].append([one[0], False])

    def write(self) -> None:
        assert flushed(self.site.store)
        if self._syncs and self.rng.random() < 0.5:
            self.sync()
        self.written = copy.deepcopy(self.model)

    def sync(self) -> None:
        ticket, segment = self.site.store.begin_sync()
        ticket.run()
        self.site.store.end_sync(segment, "")

    def kill(self) -> None:
        self.site.kill()
        self.given = []
        self.model = copy.deepcopy(self.written)
        assert {one.decode() for one in self.site.vhost.queues} == set(self.model.queues)
        for one in self.model.queues:
            assert self.site.held(one) == [tuple(held) for held in self.model.queues[one]]

    def empty(self) -> None:
        for queue in self.site.vhost.queues.values():
            queue.purge()
        for name, part, _ in self.given:
            self.site.vhost.queues[name.encode()].settle(part, 0, 1, None)
        for _ in range(3):
            assert flushed(self.site.store)
            self.sync()


@pytest.mark.parametrize("syncs", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(tmp_path: Path, seed: int, syncs: bool) -> None:
    """After a kill the queues equal lists as of the last write."""
    program = Program(tmp_path, seed, syncs=syncs)
    for _ in range(600):
        program.step()
    program.empty()
    assert len(program.site.store.segments) <= 2


def test_ranges_are_what_sets_are() -> None:
    rng = random.Random(5)
    for _ in range(300):
        ranges, plain = Ranges(), set()
        for _ in range(rng.randrange(12)):
            first, count = rng.randrange(60), rng.randrange(1, 9)
            ranges.add(first, count)
            plain |= set(range(first, first + count))
            low, high = sorted(rng.sample(range(70), 2))
            found = [number for a, b in ranges.within(low, high) for number in range(a, b)]
            assert found == sorted(plain & set(range(low, high)))


def test_entries_are_walked_over_one_by_one() -> None:
    some = [enqueued(1, 2, 3, 4, 5, 6, 7, 8.5, -1, 9), ranged(2, 1, 1, 1, 1), returned(1, 2, 3, 4, 5)]
    data = b"".join(some)
    assert [data[begin:end] for _, begin, end in walk(data)] == some


def test_a_definition_that_is_damaged_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.journal._out.write(b"\x06\0\0\0\x03abc")
    site.store.flush()
    site.store.close()
    with pytest.raises(TreecastError) as refused:
        Site(tmp_path)
    assert refused.value.fault is Fault.STORAGE


class FullDisk(Disk):
    full = False

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.full:
            raise OSError(28, "no space left on device")
        return super().write(descriptor, data, position)


def test_what_the_disk_refused_is_written_when_it_takes_it(tmp_path: Path) -> None:
    disk = FullDisk()
    site = Site(tmp_path, disk)
    site.queue()
    site.store.flush()
    disk.full = True
    site.publish(b"one")
    assert not site.store.flush()
    assert site.store.failing
    disk.full = False
    site.publish(b"two")
    assert site.store.flush()
    assert not site.store.failing
    site.kill()
    assert site.held() == [(b"one", False), (b"two", False)]


def test_runs_know_their_place_after_a_restart(site: Site) -> None:
    """Restored messages can be dead-lettered, whole and in parts."""
    site.queue("dead")
    site.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    site.publish(*[b"%d" % number for number in range(4)])
    site.store.flush()
    site.kill()
    queue = site.vhost.queues[b"q"]
    for _ in range(4):
        part = queue.get(site.now, no_ack=False)
        assert part is not None
        assert isinstance(part.run, Run)
        queue.reject(part, 0, 1, None, site.now)
        site.vhost.settle_up(site.now)
    site.store.flush()
    site.kill()
    assert [body for body, _ in site.held("dead")] == [b"0", b"1", b"2", b"3"]
    assert site.held() == []


class LameDisk(Disk):
    """Removes `most` files and no more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = 0

    def unlink(self, path: str) -> None:
        if self.most == 0:
            self.left += 1
            raise OSError(5, "refused")
        self.most -= 1
        super().unlink(path)


@pytest.mark.parametrize("most", range(0, 40, 3))
def test_what_is_settled_stays_so_however_many_files_a_kill_leaves(tmp_path: Path, most: int) -> None:
    """Files are removed later than their segments are given up: a kill may come between any two."""
    rng = random.Random(most)
    disk = LameDisk(most)
    site = Site(tmp_path, disk)
    queue = site.queue()
    held: list[Part] = []
    for number in range(300):
        site.publish(b"%05d" % number + bytes(300))
        part = queue.get(site.now, no_ack=False)
        assert part is not None
        held.append(part)
        rng.shuffle(held)
        while len(held) > 8:
            queue.settle(held.pop(), 0, 1, None)
        site.store.flush()
    kept = {bodies_of(part)[0] for part in held}
    site.kill()
    assert disk.left
    assert {body for body, _ in site.held()} == kept


def test_a_name_that_is_too_long_and_was_stored_before_it_was_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.vhost.ledger.restoring = True
    site.vhost.exchange_definitions.declare(b"e" * 300, "fanout")
    site.vhost.queue_definitions.declare(b"q" * 300)
    site.vhost.bindings.bind(b"e" * 300, Destination(b"q" * 300, False), b"k" * 300)
    site.vhost.ledger.restoring = False
    site.store.flush()
    site.kill()
    assert b"e" * 300 in site.vhost.exchanges
    assert b"q" * 300 in site.vhost.queues
