"""The store on the disk: its data is read back, memory is bounded, and unreferenced data is removed."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queues.host import Host, bodies_of, run

from treecast.middleware.broker.queues import Death, Declared, QueueSettings, Run, entries
from treecast.middleware.broker.queues.block_store import BlockStore
from treecast.middleware.broker.queues.message import decode_run as decode
from treecast.middleware.broker.queues.message import encode_run as encode
from treecast.middleware.broker.queues.restoring import QueueStorage
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.disk import Disk

names = st.binary(max_size=30)
listed = st.lists(names, max_size=3).map(tuple)
deaths = st.builds(
    Death,
    names,
    st.sampled_from(["expired", "rejected"]),
    names,
    listed,
    st.integers(0, 1 << 40),
    st.integers(-1, 1 << 40),
    st.integers(1, 1000),
    st.booleans(),
)
runs = st.builds(
    Run,
    names,
    names,
    st.binary(max_size=100),
    st.integers(0, 100),
    st.integers(0, 100),
    st.booleans(),
    st.integers(-1, 255),
    st.integers(-1, 1 << 40),
    listed,
    listed,
    st.lists(deaths, max_size=3).map(tuple),
)


RUN_FIELDS = ("exchange", "key", "data", "count", "size", "persistent", "priority", "expiration", "copies")
RUN_FIELDS += ("hidden_copies", "format")
DEATH_FIELDS = ("queue", "reason", "exchange", "keys", "time", "expiration", "count", "first")


def told(death: Death) -> list[object]:
    return [getattr(death, name) for name in DEATH_FIELDS]


@given(runs)
def test_a_run_comes_back_as_it_was(given_run: Run) -> None:
    found = decode(encode(given_run))
    for name in RUN_FIELDS:
        assert getattr(found, name) == getattr(given_run, name), name
    assert [told(death) for death in found.deaths] == [told(death) for death in given_run.deaths]


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read_as_far_as_they_go(data: bytes) -> None:
    with suppress(TreecastError):
        assert len(decode(data).data) <= len(data)


def opened(path: Path, disk: Disk | None = None, segment_bytes: int = 1 << 20) -> BlockStore:
    """Makes a store without restoring anything."""
    storage = QueueStorage(str(path), disk or Disk(), offset=0.0, syncs=False, segment_bytes=segment_bytes)
    storage.store.begin()
    storage.store.tidy()
    return storage.store


def disk_host(path: Path, **settings: int) -> tuple[Host, BlockStore]:
    store = opened(path, segment_bytes=settings.pop("segment_bytes", 4096))
    return Host(QueueSettings(**settings), store), store


def test_a_body_is_once_on_the_disk_however_many_queues_hold_it(tmp_path: Path) -> None:
    host, store = disk_host(tmp_path)
    for number in range(20):
        host.queue(f"q{number}")
        host.bind("amq.fanout", f"q{number}")
    host.publish(bytes(1000), exchange="amq.fanout")
    store.flush()
    assert store.size < 1100
    for number in range(20):
        assert host.drained(f"q{number}") == [bytes(1000)]
    store.close()


def test_messages_beyond_memory_come_back_in_order_and_segments_go(tmp_path: Path) -> None:
    host, store = disk_host(tmp_path, resident_bytes=1000, page_entries=7)
    queue = host.queue()
    for number in range(2000):
        host.publish(b"%08d" % number, b"%08d" % number)
        if number % 50 == 0:
            store.flush()
    assert len(list(tmp_path.glob("*.journal"))) > 5
    parts = [queue.get(host.now, no_ack=False) for _ in range(4000)]
    assert [bodies_of(part)[0] for part in parts if part] == [b"%08d" % (n // 2) for n in range(4000)]
    for part in parts:
        assert part is not None
        queue.settle(part, 0, 1, None)
    store.flush()
    store.flush()  # frees the segment that was full then
    store.close()  # waits until files are removed
    assert len(list(tmp_path.glob("*.journal"))) == 1


def test_what_has_gathered_is_read_before_it_is_written(tmp_path: Path) -> None:
    host, store = disk_host(tmp_path, resident_bytes=0, page_entries=2)
    host.queue()
    for number in range(9):
        host.publish(b"%d" % number)
    assert store.gathered > 0
    assert host.drained("q") == [b"%d" % number for number in range(9)]
    store.close()


def test_memory_is_bounded_however_long_the_queue(tmp_path: Path) -> None:
    """A hundred times as many messages take about as much memory, as their entries are in pages too."""
    host, store = disk_host(tmp_path, resident_bytes=10_000, page_entries=64, segment_bytes=1 << 20)
    queue = host.queue()
    body = bytes(100)

    def fill(count: int) -> int:
        for _ in range(count):
            host.publish(body)
            if store.gathered > 1 << 16:
                store.flush()
        store.flush()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = fill(300)
        many = fill(29_700)
    finally:
        tracemalloc.stop()
    assert queue.ready == 30_000
    assert many - few < 200_000  # the messages are 3 MB; their entries as objects would take 6 MB
    assert queue.purge() == 30_000
    store.close()


class Refusing(Disk):
    """Refuses writes while `full`."""

    full = False

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.full:
            raise OSError(28, "no space left on device")
        return super().write(descriptor, data, position)


def test_what_the_disk_refuses_stays_in_memory_until_it_does_not(tmp_path: Path) -> None:
    disk = Refusing()
    store = opened(tmp_path, disk)
    host = Host(QueueSettings(resident_bytes=0), store)
    host.queue()
    disk.full = True
    host.publish(b"1", b"2")
    assert not store.flush()
    assert "no space left" in store.error
    host.publish(b"3")
    disk.full = False
    assert store.flush()
    assert store.gathered == 0
    assert host.drained("q") == [b"1", b"2", b"3"]
    store.close()


def test_damage_is_found_when_it_is_read(tmp_path: Path) -> None:
    host, store = disk_host(tmp_path, resident_bytes=0)
    queue = host.queue()
    host.publish(b"x" * 100)
    host.publish(b"y" * 100)
    store.flush()
    (file,) = tmp_path.glob("*.journal")
    data = bytearray(file.read_bytes())
    data[data.index(b"y")] ^= 1
    file.write_bytes(data)
    assert queue.get(host.now, no_ack=True) is not None
    with pytest.raises(TreecastError, match="is damaged at byte") as caught:
        queue.get(host.now, no_ack=True)
    assert caught.value.fault is Fault.STORAGE
    store.close()


def test_what_an_earlier_process_has_left_is_removed(tmp_path: Path) -> None:
    _, store = disk_host(tmp_path)
    for _ in range(3):
        store.put(run(bytes(5000)))
        store.flush()
    store.close()
    again = opened(tmp_path)
    assert again.size < 100  # no definitions
    again.close()  # waits until files are removed
    assert len(list(tmp_path.glob("*.journal"))) == 1


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 62), st.text(max_size=9))
def test_a_note_is_stored_as_a_definition_is(run: int, number: int, name: str) -> None:
    one = Declared("\0hosts", "taken", name.encode(), 0, {"run": run, "number": number})
    assert entries.plain(one) == entries.encoded(one)
    assert entries.declared(entries.plain(one)) == one
