"""What the journal keeps of event streams: whom they are for, and which messages they owe.

A stream that promises something is a session of the journal, under a name that no client can have:

    U+0000 | "events " | epoch | " " | stream | " " | hosts, parted by commas
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import Creditor, PubSub

from .batches import Lineage
from .stream import EventStream

_PREFIX: Final = "\0events "


class Owed:
    """What a stream of an earlier run owes."""

    __slots__ = ("hosts", "lineage", "record")

    def __init__(self, record: Creditor, lineage: Lineage, hosts: frozenset[int]) -> None:
        self.record = record
        self.lineage = lineage
        self.hosts = hosts


class Owing:
    """The records of one host. `run`: its own."""

    def __init__(self, run: int, hub: PubSub) -> None:
        self._run = run
        self._hub = hub
        self._old: list[Owed] = []

    def take_up(self) -> list[Owed]:
        """What earlier runs owe, oldest stream first. Streams that owe nothing are forgotten."""
        journal = self._hub.journal
        if journal is None:
            return []
        for record in list(journal.records.values()):
            if not record.client_id.startswith(_PREFIX):
                continue
            if record.owed:
                self._old.append(_read(record))
            else:
                journal.end(record)
        self._old.sort(key=lambda old: old.lineage)
        return list(self._old)

    def begin(self, stream: EventStream) -> Creditor:
        """The record of a stream that promises something for the first time."""
        hosts = ",".join(map(str, sorted(stream.members)))
        name = f"{_PREFIX}{self._run} {stream.number} {hosts}"
        record = Creditor(self._hub.next_serial(), name)
        if self._hub.journal is not None:
            self._hub.journal.begin(record)
        return record

    def end(self, stream: EventStream) -> None:
        """The stream is no more."""
        if stream.record is not None and self._hub.journal is not None:
            self._hub.journal.end(stream.record)

    def sweep(self) -> None:
        """Forgets what earlier runs do not owe any more."""
        journal = self._hub.journal
        if journal is not None and any(not old.record.owed for old in self._old):
            for old in self._old:
                if not old.record.owed:
                    journal.end(old.record)
            self._old = [old for old in self._old if old.record.owed]

    def oldest(self) -> Lineage | None:
        """The first stream of an earlier run of which something may be sent again."""
        return self._old[0].lineage if self._old else None


def _read(record: Creditor) -> Owed:
    epoch, stream, hosts = record.client_id[len(_PREFIX) :].split(" ")
    return Owed(record, (int(epoch), int(stream)), frozenset(int(host) for host in hosts.split(",")))
