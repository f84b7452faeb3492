"""Restores the queues that an earlier process left: definitions, and unsettled messages.

The entries of the log are read twice. The first pass reads all definitions, and the state of messages by the
segment of their runs. The second pass reads, segment by segment, what was enqueued: the messages of each
queue thus come in order, and go directly to the pages of its backlog. Messages that were handed out are
redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.block_log import BlockSegment
from treecast.middleware.storage.disk import Disk

from . import entries
from .block_store import BlockStore, entries_in
from .entries import Declared
from .exchange import Destination
from .journal import QueueJournal, VhostRecorder
from .marks import Marks
from .message import Part
from .policies import Policy
from .queue import MessageQueue
from .refusals import Refusal
from .virtual_host import VirtualHost

_log = Log(__name__)

OPERATOR_POLICY: Final = "operator_policy"
_POLICIES: Final = ("policy", OPERATOR_POLICY)
_DECLARATIONS: Final = {entries.DECLARED: True, entries.DELETED: False}
_BINDINGS: Final = {entries.BOUND: True, entries.UNBOUND: False}


class QueueStorage:
    """An opened log: `store` and `journal`, and the state to be restored from it."""

    def __init__(self, directory: str, disk: Disk, *, offset: float, syncs: bool, segment_bytes: int) -> None:
        """Opens the log. `offset` plus `now` is the time of day. Raises STORAGE."""
        self.journal = QueueJournal(offset)
        self._marks = Marks()
        self.store = BlockStore.open(
            directory, disk, self.journal, self._read, segment_bytes=segment_bytes, syncs=syncs
        )

    def _read(self, in_segment: BlockSegment, block: bytes) -> None:
        """Reads a block in the first pass."""
        segment, data = in_segment.number, entries_in(block)
        try:
            for kind, begin, end in entries.walk(data):
                if entries.SETTLED <= kind <= entries.RETURNED:
                    self.journal.restored(segment, self._marks.read(kind, data, begin))
                elif kind == entries.RESET:
                    self.journal.forget()
                    following = msgspec.msgpack.decode(entries.packed(data, begin, end), type=int)
                    self.journal.next_queue = max(self.journal.next_queue, following)
                elif kind in _DECLARATIONS:
                    one = entries.declared(entries.packed(data, begin, end))
                    self.journal.put(one, there=_DECLARATIONS[kind])
                elif kind in _BINDINGS:
                    bound = entries.bound(entries.packed(data, begin, end))
                    self.journal.put(bound, there=_BINDINGS[kind])
        except (msgspec.DecodeError, IndexError, ValueError) as error:
            raise TreecastError(
                Fault.STORAGE, f"a stored entry of a queue cannot be read: {error}"
            ) from error

    def restore(self, vhost_of: Callable[[str], VirtualHost], now: float) -> int:
        """Restores definitions and queues in the virtual hosts that `vhost_of` returns, and opens the log for
        writing. Returns the number of messages. Raises STORAGE on a disk error.
        """
        queues = self._define(vhost_of, now)
        self.store.begin()
        count = 0
        for segment in self.store.segments:
            for data in self.store.entries_of(segment):
                for kind, begin, _ in entries.walk(data):
                    if kind == entries.ENQUEUED:
                        count += self._enqueue(queues, segment, data, begin, now)
        self._marks = Marks()
        self.store.tidy()
        for vhost in {declared.vhost for declared in self.journal.declared.values()}:
            for queue in vhost_of(vhost).queues.values():
                vhost_of(vhost).watch(queue)
        return count

    # --- definitions

    def _define(self, vhost_of: Callable[[str], VirtualHost], now: float) -> dict[int, MessageQueue]:
        """Restores the definitions. Returns the queues that hold messages, by number."""
        queues: dict[int, MessageQueue] = {}
        for declared in list(self.journal.declared.values()):
            vhost = vhost_of(declared.vhost)
            with Restoring(vhost) as recorder:
                self._declare(vhost, declared, now)
            if declared.kind == "queue":
                recorder.numbers[declared.name] = declared.number
                queue = vhost.queues[declared.name]
                if isinstance(queue, MessageQueue):
                    queues[declared.number] = queue
        for bound in list(self.journal.bound.values()):
            vhost = vhost_of(bound.vhost)
            destination = Destination(bound.name, bound.kind == "exchange")
            try:
                with Restoring(vhost):
                    vhost.bindings.bind(bound.source, destination, bound.key, bound.arguments)
            except Refusal as refusal:
                _log.warning("stored binding is left out", exchange=bound.source, error=refusal)
                self.journal.put(bound, there=False)
        return queues

    def _declare(self, vhost: VirtualHost, declared: Declared, now: float) -> None:
        said = declared.definition
        arguments = said.get("arguments")
        asked = arguments if isinstance(arguments, dict) else {}
        auto_delete = said.get("auto_delete") is True
        if declared.kind == "exchange":
            vhost.exchange_definitions.declare(
                declared.name,
                str(said["type"]),
                auto_delete=auto_delete,
                internal=said.get("internal") is True,
                arguments=asked,
            )
        elif declared.kind == "queue":
            vhost.queue_definitions.declare(declared.name, auto_delete=auto_delete, arguments=asked, now=now)
        elif declared.kind in _POLICIES:
            policy = _policy(declared.name.decode(), said)
            vhost.policies.set(policy, now, operator=declared.kind == OPERATOR_POLICY)

    # --- messages

    def _enqueue(
        self, queues: dict[int, MessageQueue], segment: int, data: bytes, at: int, now: float
    ) -> int:
        """Restores the unsettled messages of one entry. Returns their number."""
        number, place, begin, end, count, size, position, expires, priority, deliveries = (
            entries.read_enqueued(data, at)
        )
        queue = queues.get(number)
        if queue is None:
            return 0
        expires_at = expires - self.journal.offset if expires != NEVER else NEVER
        whole = Part(None, place, begin, end, count, size, position, expires_at, priority, deliveries)
        whole.durable = True
        restored = 0
        for part in self._left(segment, number, whole):
            queue.restore(part)
            restored += part.count
        return restored

    def _left(self, segment: int, queue: int, whole: Part) -> Iterator[Part]:
        marks = self._marks.of(segment, queue)
        first, end = whole.position, whole.position + whole.count
        if marks is None:
            yield whole
            return
        for begin, stop, handed, deliveries in marks.pieces(first, end):
            part = whole
            if stop - begin < whole.count:
                if whole.run is None:
                    whole.run = self.store.load(whole.place)
                part = whole.section(begin - first, stop - begin)
                part.run = None
            part.redelivered = handed
            part.deliveries = max(part.deliveries, deliveries)
            yield part


def _policy(name: str, said: Mapping[str, object]) -> Policy:
    """Returns the policy with `said` as in `Policy.said`."""
    definition, priority = said["definition"], said["priority"]
    assert isinstance(definition, dict)
    assert isinstance(priority, int)
    return Policy(name, str(said["pattern"]), definition, priority, str(said["apply-to"]))


class Restoring:
    """A context in which a virtual host restores earlier declarations, and its recorder ignores them."""

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost

    def __enter__(self) -> VhostRecorder:
        recorder = self._vhost.ledger.recorder
        assert isinstance(recorder, VhostRecorder)
        self._vhost.ledger.restoring = recorder.muted = True
        return recorder

    def __exit__(self, *_: object) -> None:
        recorder = self._vhost.ledger.recorder
        assert isinstance(recorder, VhostRecorder)
        self._vhost.ledger.restoring = recorder.muted = False
