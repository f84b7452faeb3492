"""The journal: durable sessions, the messages owed to them, and retained messages, kept across restarts.

Every change is an entry. The entries of one turn form one block, which is written with one call before
anything that depends on it is sent. An acknowledged publish is therefore stored, at the cost of one write per
turn. Nothing is written for sessions that end with their connection.

The log's oldest segment is dropped when nothing in it is needed. A new segment begins with the state of all
sessions; the remaining segments are therefore always sufficient. If only a little of an old segment is still
needed, that is rewritten at the end of the log.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from librt.strings import BytesWriter

from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.block_log import BlockLog, BlockSegment, SyncTicket

from . import journal_codec as codec
from .journal_codec import (
    put,
    put_bytes,
    put_entry,
    put_message,
    put_owed,
    put_owed_run,
    put_owner,
    put_passed,
    put_run,
    put_run_head,
    put_session,
    put_state,
    put_subscribed,
    put_will,
)
from .journal_segments import Needed
from .message import Creditor, Message, Owed, PromisedRun, SubscriptionRecord, WillRecord
from .retained import RetainedStore

_KEEP: Final = 4  # with more segments, the oldest is rewritten if little of it is needed
_BLOCK: Final = 4 * 1024 * 1024  # a larger state is written in blocks of about this size
_LARGE: Final = 4096  # bytes of a run that is not copied into the writer


class Journal:
    """The durable state of one host's publish/subscribe, from `restore.open_journal` to `close`.

    `records`: the durable sessions by number. `failing`: the disk fails; nothing may be acknowledged.
    `passed`: the highest number taken of each stream (host, epoch, stream) of another host.
    """

    def __init__(
        self,
        log: BlockLog,
        counters: PubSubCounters,
        retained: RetainedStore,
        segment_bytes: int,
        syncs: bool,
    ) -> None:
        self.records: dict[int, Creditor] = {}
        self.passed: dict[tuple[int, int, int], int] = {}
        self.failing = False
        self.error = ""
        self.log = log
        self._segment = log.segments[-1] if log.segments else BlockSegment(0, 0)
        self._counters = counters
        self._retained = retained
        self._segment_bytes = segment_bytes
        self._roll_at = segment_bytes
        self._out = BytesWriter()
        self._before: list[
            bytes
        ] = []  # parts of the next block that precede `_out`; large runs are not copied
        self._next = 1
        self._done_session = 0  # consecutive settled messages of one session, not yet written
        self._done_first = 0
        self._done_count = 0
        self._handed_session = 0  # the same for messages that were sent
        self._handed_first = 0
        self._handed_count = 0
        self._passing: dict[tuple[int, int, int], None] = {}  # the streams of `passed` not yet written
        self._rows: set[int] = set()  # the kinds of consecutive messages not yet written
        # Changes leave a trace in one of these. All but `_out` are emptied, never replaced.
        self.pending: tuple[Sized, ...] = (self._out, self._before, self._passing, self._rows)
        self._syncs = syncs
        # something was written and not yet forced to disk, perhaps by an earlier process
        self.unsynced = True

    @property
    def rolled(self) -> bool:
        """Whether full segments are not forced to the disk yet."""
        return self.log.rolled

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return self.log.size

    # --- messages

    def _write_message(self, message: Message) -> None:
        message.number = self._next
        self._next += 1
        message.segment = self._segment
        put_message(self._out, message)

    def hold(self, message: Message) -> None:
        """Adds a reference to the message, and writes it if it has no number. It is kept until `let_go`."""
        if message.number == 0:
            self._write_message(message)
        if message.waiting == 0:
            segment = message.segment
            if segment is not None:
                segment.live += 1
        message.waiting += 1

    def let_go(self, message: Message) -> None:
        """Removes a reference to the message."""
        message.waiting -= 1
        if message.waiting == 0:
            segment = message.segment
            if segment is not None:
                segment.live -= 1

    def owe(self, record: Creditor, owed: Owed) -> None:
        """Records that the session is owed a message of QoS 1 or 2; again if it is owed it already."""
        message = owed.message
        if message.number == 0 or message.number not in record.owed:
            self.hold(message)
        if self._done_session == record.number:
            behind = self._done_first + self._done_count
            if self._done_first <= message.number < behind:
                self._write_done()  # the entries of one message keep their order
        record.owed[message.number] = owed
        put_owed(self._out, record.number, owed)

    def hold_run(self, run: PromisedRun) -> None:
        """As `hold`, for a run: its messages get consecutive numbers."""
        if run.number == 0:
            run.number = self._next
            self._next += run.count
            run.segment = self._segment
            self._put_run(run)
        if run.waiting == 0:
            segment = run.segment
            if segment is not None:
                segment.live += 1
        run.waiting += 1

    def _put_run(self, run: PromisedRun) -> None:
        if len(run.data) < _LARGE:
            put_run(self._out, run)
            return
        put_run_head(self._out, run)
        self._before += [self._out.getvalue(), run.data]
        self._out.truncate(0)

    def let_go_run(self, run: PromisedRun) -> None:
        run.waiting -= 1
        if run.waiting == 0:
            segment = run.segment
            if segment is not None:
                segment.live -= 1

    def owe_run(self, record: Creditor, run: PromisedRun) -> None:
        """Records that an event stream is owed a run, until all of it is settled."""
        self.hold_run(run)
        record.runs[run.number] = run
        put_owed_run(self._out, record.number, run)

    def settled_run(self, record: Creditor, run: PromisedRun) -> None:
        if record.runs.pop(run.number, None) is not None:
            self.let_go_run(run)
            self._done(record, run.number, run.count)

    def handed(self, record: Creditor, owed: Owed) -> None:
        """Records that a queued message of QoS 1 is now sent: if it is sent again, it is a duplicate."""
        number = owed.message.number
        if owed.sent or number not in record.owed:
            return
        owed.sent = True
        follows = self._handed_count and number == self._handed_first + self._handed_count
        if follows and self._handed_session == record.number:
            self._handed_count += 1
            return
        self._write_handed()
        self._handed_session = record.number
        self._handed_first = number
        self._handed_count = 1
        self._rows.add(codec.HANDED)

    def _write_handed(self) -> None:
        if self._handed_count:
            put_entry(self._out, codec.HANDED, self._handed_session, self._handed_first)
            put(self._out, self._handed_count)
            self._handed_count = 0
            self._rows.discard(codec.HANDED)

    def settled(self, record: Creditor, message: Message) -> None:
        """Records that the session acknowledged the message, or that the message was dropped."""
        number = message.number
        if record.owed.pop(number, None) is None:
            return
        self.let_go(message)
        self._done(record, number, 1)

    def _done(self, record: Creditor, number: int, count: int) -> None:
        """Records that `count` messages from `number` on are settled."""
        follows = self._done_count and number == self._done_first + self._done_count
        if follows and self._done_session == record.number:
            self._done_count += count
            return
        self._write_done()
        self._done_session = record.number
        self._done_first = number
        self._done_count = count
        self._rows.add(codec.DONE)

    def _write_done(self) -> None:
        if self._done_count:
            put_entry(self._out, codec.DONE, self._done_session, self._done_first)
            put(self._out, self._done_count)
            self._done_count = 0
            self._rows.discard(codec.DONE)

    # --- other hosts

    def pass_by(self, stream: tuple[int, int, int], number: int) -> None:
        """Records that all messages of another host's stream up to `number` were taken; 0: it has ended."""
        if number:
            self.passed[stream] = number
        else:
            self.passed.pop(stream, None)
        self._passing[stream] = None

    def _write_passed(self) -> None:
        for stream in self._passing:
            put_passed(self._out, stream, self.passed.get(stream, 0))
        self._passing.clear()

    # --- QoS 2

    def sent(self, record: Creditor, message: Message, packet_id: int) -> None:
        """Records the packet id of a message of QoS 2, as a retransmission needs the same id."""
        record.sent[packet_id] = message.number
        put_entry(self._out, codec.SENT, record.number, message.number)
        put(self._out, packet_id)

    def received(self, record: Creditor, message: Message, packet_id: int) -> None:
        """Records that the client has the message: only the packet id remains in use."""
        record.sent.pop(packet_id, None)
        record.released.add(packet_id)
        if record.owed.pop(message.number, None) is not None:
            self.let_go(message)
        put_entry(self._out, codec.RECEIVED, record.number, message.number)
        put(self._out, packet_id)

    def completed(self, record: Creditor, packet_id: int) -> None:
        record.released.discard(packet_id)
        put_entry(self._out, codec.COMPLETED, record.number, packet_id)

    def unsent(self, record: Creditor, packet_id: int) -> None:
        """Records that a message of QoS 2 was sent, and settled without having been received."""
        if record.sent.pop(packet_id, None) is not None:
            put_entry(self._out, codec.COMPLETED, record.number, packet_id)

    def taken(self, record: Creditor, packet_id: int) -> None:
        """Records that the client's publish of QoS 2 was handed over."""
        record.incoming.add(packet_id)
        put_entry(self._out, codec.TAKEN, record.number, packet_id)

    def released(self, record: Creditor, packet_id: int) -> None:
        record.incoming.discard(packet_id)
        put_entry(self._out, codec.RELEASED, record.number, packet_id)

    # --- sessions

    def begin(self, record: Creditor) -> None:
        """Makes a session durable, with everything in its record."""
        self.records[record.number] = record
        put_state(self._out, record)

    def changed(self, record: Creditor) -> None:
        """Records a change of the session's expiry, or of whether its client is connected."""
        put_session(self._out, record)

    def given(self, record: Creditor) -> None:
        """Records to which user the session belongs from now on."""
        put_owner(self._out, record)

    def will(self, record: Creditor, will: WillRecord | None) -> None:
        """Records the will that is published when the client disappears; None: no will."""
        if will is None:
            if record.will is not None:
                self._out.append(codec.NO_WILL)
                put(self._out, record.number)
        else:
            put_will(self._out, record.number, will)
        record.will = will

    def subscribed(self, record: Creditor, filter: bytes, one: SubscriptionRecord) -> None:
        record.subscriptions[filter] = one
        put_subscribed(self._out, record.number, filter, one)

    def unsubscribed(self, record: Creditor, filter: bytes) -> None:
        record.subscriptions.pop(filter, None)
        self._out.append(codec.UNSUBSCRIBED)
        put(self._out, record.number)
        put_bytes(self._out, filter)

    def end(self, record: Creditor) -> None:
        """Records the end of the session."""
        for owed in record.owed.values():
            self.let_go(owed.message)
        record.owed.clear()
        for run in record.runs.values():
            self.let_go_run(run)
        record.runs.clear()
        self.records.pop(record.number, None)
        self._out.append(codec.ENDED)
        put(self._out, record.number)

    # --- retained messages

    def retain(self, message: Message, before: Message | None) -> None:
        """Records that the topic retains `message` instead of `before`."""
        self.hold(message)
        if before is not None and before.number:
            self.let_go(before)
        self._out.append(codec.RETAINED)
        put(self._out, message.number)

    def unretain(self, before: Message) -> None:
        if before.number == 0:
            return
        self.let_go(before)
        self._out.append(codec.CLEARED)
        put_bytes(self._out, before.topic)

    # --- the disk

    def flush(self) -> bool:
        """Writes everything new since the last call; called once per turn. Returns whether all is written."""
        self._write_handed()
        self._write_done()
        if self._passing:
            self._write_passed()
        out = self._out
        if len(out) == 0 and not self._before:
            return True
        try:
            self.log.append(*self._before, out.getvalue())
        except TreecastError as error:
            self._refused(error)
            return False
        self.failing = False
        self.unsynced = True
        self._before.clear()
        if len(out) > _BLOCK:
            self._out = BytesWriter()
            self.pending = (self._out, self._before, self._passing, self._rows)
        else:
            out.truncate(0)
        if self._segment.size > self._roll_at:
            self._roll()
        return not self.failing

    def _refused(self, error: Exception) -> None:
        self.failing = True
        self.error = str(error)
        self._counters.journal_errors += 1

    def _roll(self) -> None:
        """Begins a new segment with the state of all sessions, and drops segments no longer needed."""
        try:
            self._segment = self.log.roll()
            self._write_states()
            if len(self.log.segments) > _KEEP:
                self._relieve(self.log.segments[0])
            if not self._syncs:
                self._drop()
        except (OSError, TreecastError) as error:
            self._refused(error)
        self._roll_at = max(self._segment_bytes, 4 * self._segment.size)

    def _relieve(self, oldest: BlockSegment) -> None:
        """Moves what is needed of a segment to the end of the log if that is little."""
        needed = Needed(oldest, self.records.values(), self._retained)
        if needed.size * 2 < oldest.size:
            needed.move(self._segment, self._out)
            self._write_block()

    def _write_states(self) -> None:
        put_entry(self._out, codec.NEXT, self._next, 0)
        for stream, number in self.passed.items():
            put_passed(self._out, stream, number)
        for record in self.records.values():
            put_state(self._out, record)
            if len(self._out) > _BLOCK:
                self._write_block()
        self._write_block()

    def _write_block(self) -> None:
        if len(self._out):
            self.log.append(self._out.getvalue())
            self._out.truncate(0)

    def _drop(self) -> None:
        """Drops unneeded segments, only from the front: entries that settle a message come after it."""
        while len(self.log.segments) > 1 and self.log.segments[0].live == 0:
            self.log.drop_first()

    def begin_sync(self) -> tuple[SyncTicket, int]:
        """Returns the sync to run beside the loop, and the number for `end_sync`. Raises OSError."""
        self.unsynced = False
        return self.log.begin_sync(), self._segment.number

    def end_sync(self, segment: int, error: str) -> None:
        """Handles the end of a sync; `error` is "" on success. Drops segments that are no longer needed."""
        if error:
            self.unsynced = True
            self._refused(OSError(error))
        elif segment == self._segment.number:
            self._drop()

    def close(self) -> None:
        self.flush()
        self.log.close()

    # --- restoring

    def continue_from(self, number: int, segment: BlockSegment) -> None:
        """Continues the journal: the next message gets `number`, and entries go to `segment`."""
        self._next = number
        self._segment = segment
