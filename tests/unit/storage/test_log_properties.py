"""The log against a plain list of batches, under any sequence of operations."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.storage.settings import LogSettings

Kit = Any


class LogMachine(RuleBasedStateMachine):
    """After any operations, and after a kill, a log reads like its reference."""

    kit: Kit

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.path = self.root / "t-0"
        self.disk = self.kit.FaultyDisk()
        self.reference = self.kit.ReferenceLog()
        self.now_ms = 10_000
        self.sequence = 0
        self.settings = LogSettings(checkpoint_bytes=1500)
        self.log: PartitionLog

    @initialize(
        segment_bytes=st.sampled_from([400, 1500, 100_000]),
        interval=st.sampled_from([0, 100, 4096]),
    )
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.config = self.kit.config({"segment.bytes": segment_bytes, "index.interval.bytes": interval})
        self.open()

    def open(self) -> None:
        shared = SharedFiles(self.disk, open_files=3, index_bytes=200)
        self.log = self.kit.open(self.path, self.config, self.settings, shared=shared, now_ms=self.now_ms)

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=3), size=st.integers(0, 80))
    def append(self, counts: list[int], size: int) -> None:
        batches = [self.kit.batch(count, value=b"v" * size, timestamp=self.now_ms) for count in counts]
        if sum(map(len, batches)) > self.config.segment_bytes:
            return
        stored, data = self.kit.append_bytes(self.log, b"".join(batches), self.now_ms)
        assert stored.base_offset == self.reference.end_offset
        self.reference.append(data)

    @rule()
    def append_of_a_producer(self) -> None:
        batch = self.kit.batch(2, producer=ProducerIdentity(1, 0), sequence=self.sequence)
        self.reference.append(self.kit.append_bytes(self.log, batch, self.now_ms)[1])
        self.sequence += 2

    @rule(room=st.integers(0, 150))
    def append_to_a_full_disk(self, room: int) -> None:
        self.disk.room = room
        with pytest.raises(TreecastError) as refused:
            self.kit.append(self.log, self.kit.batch(3, value=b"w" * 80), now_ms=self.now_ms)
        assert refused.value.fault is Fault.STORAGE
        self.disk.room = None

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        self.log.flush(self.now_ms, checkpoint=checkpoint)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.log.end_offset))
        assert self.log.delete_before(offset) == offset
        self.reference.start_offset = offset

    @rule(advance=st.integers(0, 400))
    def clean(self, advance: int) -> None:
        self.now_ms += advance
        self.log.config = self.kit.config({**self.config.overrides, "retention.ms": 1000})
        self.log.clean(self.now_ms)
        self.log.config = self.config
        self.reference.start_offset = max(self.reference.start_offset, self.log.start_offset)

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.open()
        assert self.log.report.checked_batches == 0

    @rule()
    def kill_and_open(self) -> None:
        self.log.delete()
        self.open()
        assert self.log.report.truncated_bytes == 0
        self.reference.start_offset = max(self.reference.start_offset, self.log.start_offset)

    @rule(torn=st.binary(min_size=1, max_size=200))
    def kill_in_an_append(self, torn: bytes) -> None:
        self.log.delete()
        with open(self.log.held.active.file.path, "ab") as file:
            file.write(torn)
        self.open()
        assert self.log.report.truncated_bytes == len(torn)

    @rule(data=st.data(), max_bytes=st.integers(0, 6000), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.log.end_offset))
        limit = data.draw(st.integers(offset, self.log.end_offset))
        chunks, size = self.log.read(offset, max_bytes, limit, at_least_one=at_least_one)
        found = b"".join(map(bytes, chunks))
        assert len(found) == size
        assert found == self.reference.read(offset, max_bytes, limit, at_least_one=at_least_one)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.end_offset == self.reference.end_offset
        assert self.log.start_offset == self.reference.start_offset
        check_invariants(self.log)
        known = self.log.producers.get(1)
        if self.sequence:
            assert known is not None
            assert known.last_sequence == self.sequence - 1
        expected = self.reference.read(self.log.start_offset, 1 << 30, 1 << 60, at_least_one=True)
        chunks, _ = self.log.read(self.log.start_offset, 1 << 30, 1 << 60, at_least_one=True)
        assert b"".join(map(bytes, chunks)) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            assert self.log.shared.pool.open_files == 0
        shutil.rmtree(self.root)


def test_any_sequence_of_operations(kit: Kit) -> None:
    LogMachine.kit = kit
    run_state_machine_as_test(
        LogMachine,
        settings=settings(
            max_examples=80,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_reference_can_disagree(kit: Kit, path: Path) -> None:
    """The comparison finds a lost batch."""
    log, reference = kit.open(path), kit.ReferenceLog()
    for _ in range(3):
        reference.append(kit.append_bytes(log, kit.batch())[1])
    log.delete()
    os.truncate(log.held.active.file.path, log.held.active.size - 1)
    again = kit.open(path)
    assert kit.read_all(again) != reference.read(0, 1 << 20, 3, at_least_one=True)
