"""Opens the journal: reads all blocks in order, and restores the valid sessions and retained messages."""

from __future__ import annotations

from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.block_log import BlockLog, BlockSegment
from treecast.middleware.storage.disk import Disk

from . import journal_codec as codec
from .journal import Journal
from .journal_codec import EntryReader
from .message import Creditor, Message, Owed, SubscriptionRecord
from .retained import RetainedStore
from .settings import PubSubSettings


class Replay:
    """The state after the entries read so far."""

    def __init__(self) -> None:
        self.sessions: dict[int, Creditor] = {}
        self.messages: dict[int, Message] = {}
        self.retained: dict[bytes, Message] = {}
        self.passed: dict[tuple[int, int, int], int] = {}
        self.next = 1
        self.highest_session = 0
        self._segment: BlockSegment | None = None

    def take(self, segment: BlockSegment, block: bytes) -> None:
        """Applies one block. Raises STORAGE if its entries are invalid although its checksum is right."""
        self._segment = segment
        reader = EntryReader(block)
        try:
            while reader.more:
                self._entry(reader.byte(), reader)
        except (IndexError, UnicodeDecodeError) as error:
            raise TreecastError(Fault.STORAGE, f"the journal cannot be read: {error}") from error

    def _entry(self, kind: int, reader: EntryReader) -> None:
        if kind == codec.MESSAGE:
            self._message(reader.message())
        elif kind == codec.NEXT:
            self.next = max(self.next, reader.number())
            reader.number()
        elif kind == codec.RETAINED:
            message = self.messages.get(reader.number())
            if message is not None:
                self.retained[message.topic] = message
        elif kind == codec.CLEARED:
            self.retained.pop(reader.some(), None)
        elif kind == codec.SESSION:
            self._session(reader)
        elif kind == codec.PASSED:
            self._passed(reader)
        elif kind == codec.RUN:
            for message in reader.run():
                self._message(message)
        elif codec.OWE <= kind <= codec.STATE or codec.HANDED <= kind <= codec.FILTERED:
            self._of_session(kind, reader)
        else:
            raise TreecastError(Fault.STORAGE, f"the journal has an entry of kind {kind}, of a later version")

    def _message(self, message: Message) -> None:
        """Adds a message. A known number means the same message, moved to a newer segment."""
        known = self.messages.setdefault(message.number, message)
        known.segment = self._segment
        self.next = max(self.next, message.number + 1)

    def _passed(self, reader: EntryReader) -> None:
        stream = (reader.number(), reader.number(), reader.number())
        number = reader.number()
        if number:
            self.passed[stream] = number
        else:
            self.passed.pop(stream, None)

    def _session(self, reader: EntryReader) -> None:
        number = reader.number()
        record = self.sessions.get(number)
        expiry, gone_at, name = reader.number(), reader.real(), reader.some().decode()
        if record is None:
            record = self.sessions[number] = Creditor(number, name)
            self.highest_session = max(self.highest_session, number)
        record.expiry = expiry
        record.gone_at = gone_at

    def _of_session(self, kind: int, reader: EntryReader) -> None:
        """Applies an entry of a session; an entry of an ended session is read and ignored."""
        number = reader.number()
        record = self.sessions.get(number) or Creditor(number, "")
        if kind == codec.OWE or kind == codec.OWE_SHARED:
            key = reader.number()
            message = self.messages.get(key)
            owed = reader.owed(message or Message(b"", b""))
            if kind == codec.OWE_SHARED:
                owed.share = reader.some()
            if message is not None:
                record.owed[key] = owed
        elif kind == codec.DONE:
            first = reader.number()
            for key in range(first, first + reader.number()):
                record.owed.pop(key, None)
        elif kind == codec.HANDED:
            first = reader.number()
            for key in range(first, first + reader.number()):
                known = record.owed.get(key)
                if known is not None:
                    known.sent = True
        elif kind == codec.OWE_RUN:
            first = reader.number()
            for key in range(first, first + reader.number()):
                message = self.messages.get(key)
                if message is not None:
                    record.owed[key] = Owed(message, 1, False, ())
        elif kind == codec.WILL:
            record.will = reader.will()
        elif kind == codec.NO_WILL:
            record.will = None
        elif kind == codec.SENT:
            key = reader.number()
            record.sent[reader.number()] = key
        elif kind == codec.RECEIVED:
            record.owed.pop(reader.number(), None)
            packet_id = reader.number()
            record.sent.pop(packet_id, None)
            record.released.add(packet_id)
        elif kind == codec.COMPLETED:
            packet_id = reader.number()
            record.released.discard(packet_id)
            record.sent.pop(packet_id, None)
        elif kind == codec.TAKEN:
            record.incoming.add(reader.number())
        elif kind == codec.RELEASED:
            record.incoming.discard(reader.number())
        elif kind == codec.SUBSCRIBED:
            options, identifier = reader.number(), reader.number()
            record.subscriptions[reader.some()] = SubscriptionRecord(options, identifier)
        elif kind == codec.FILTERED:
            content, filter = reader.some().decode(), reader.some()
            if filter in record.subscriptions:
                record.subscriptions[filter].content = content
        elif kind == codec.UNSUBSCRIBED:
            record.subscriptions.pop(reader.some(), None)
        elif kind == codec.OWNER:
            record.user = reader.some().decode()
        elif kind == codec.ENDED:
            self.sessions.pop(number, None)
        else:
            _forget_state(record)


def _forget_state(record: Creditor) -> None:
    record.will = None
    record.subscriptions = {}
    record.incoming = set()
    record.sent = {}
    record.released = set()


def open_journal(
    directory: str,
    disk: Disk,
    settings: PubSubSettings,
    counters: PubSubCounters,
    retained: RetainedStore,
    syncs: bool,
) -> tuple[Journal, int]:
    """Opens the journal in `directory` and fills `retained`.

    Returns the journal and the highest session number in it. `syncs`: the caller forces writes to disk with
    `begin_sync`. Raises STORAGE on a disk error, or if the journal is damaged elsewhere than at its end.
    """
    replay = Replay()
    log = BlockLog.open(directory, disk, syncs, replay.take)
    counters.journal_cut_bytes += log.cut
    journal = Journal(log, counters, retained, settings.segment_bytes, syncs)
    journal.continue_from(replay.next, log.segments[-1])
    journal.records = replay.sessions
    journal.passed = replay.passed
    for record in replay.sessions.values():
        for owed in record.owed.values():
            _hold(owed.message)
    for message in replay.retained.values():
        retained.put(message)
        _hold(message)
    return journal, replay.highest_session


def _hold(message: Message) -> None:
    if message.waiting == 0 and message.segment is not None:
        message.segment.live += 1
    message.waiting += 1
