"""The journal's records of event streams: their hosts and the messages they owe.

A stream with promised messages is a session of the journal, under a name that no client can have:

    U+0000 | "events " | epoch | " " | stream | " " | hosts, separated by commas
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.pubsub import Creditor, PubSub

from .batches import Lineage
from .stream import EventStream

_PREFIX: Final = "\0events "


class Owed:
    """The messages that a stream of an earlier run owes."""

    __slots__ = ("hosts", "lineage", "record")

    def __init__(self, record: Creditor, lineage: Lineage, hosts: frozenset[int]) -> None:
        self.record = record
        self.lineage = lineage
        self.hosts = hosts


class Owing:
    """The records of one host. `run`: its run number."""

    def __init__(self, run: int, hub: PubSub) -> None:
        self._run = run
        self._hub = hub
        self._old: list[Owed] = []

    def take_up(self) -> list[Owed]:
        """Returns what earlier runs owe, oldest stream first. Forgets streams that owe nothing."""
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
        """Creates the record of a stream at its first promise."""
        hosts = ",".join(map(str, sorted(stream.members)))
        name = f"{_PREFIX}{self._run} {stream.number} {hosts}"
        record = Creditor(self._hub.routes.next_serial(), name)
        if self._hub.journal is not None:
            self._hub.journal.begin(record)
        return record

    def end(self, stream: EventStream) -> None:
        """Deletes the record of an ended stream."""
        if stream.record is not None and self._hub.journal is not None:
            self._hub.journal.end(stream.record)

    def sweep(self) -> None:
        """Forgets streams of earlier runs that no longer owe messages."""
        journal = self._hub.journal
        if journal is not None and any(not old.record.owed for old in self._old):
            for old in self._old:
                if not old.record.owed:
                    journal.end(old.record)
            self._old = [old for old in self._old if old.record.owed]

    def oldest(self) -> Lineage | None:
        """Returns the oldest stream of earlier runs whose messages may be sent again, if any."""
        return self._old[0].lineage if self._old else None


def _read(record: Creditor) -> Owed:
    epoch, stream, hosts = record.client_id[len(_PREFIX) :].split(" ")
    return Owed(record, (int(epoch), int(stream)), frozenset(int(host) for host in hosts.split(",")))
