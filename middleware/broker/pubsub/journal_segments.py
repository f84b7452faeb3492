"""The journal's oldest segment: its messages and runs that are still needed move to the end of the log."""

from __future__ import annotations

from collections.abc import Iterable

from librt.strings import BytesWriter

from treecast.middleware.storage.block_log import BlockSegment

from . import journal_codec as codec
from .journal_codec import put, put_message, put_owed, put_owed_run, put_run
from .message import Creditor, Message, PromisedRun
from .retained import RetainedStore


class Needed:
    """The messages and runs of `segment` that sessions or topics still need."""

    def __init__(self, segment: BlockSegment, records: Iterable[Creditor], retained: RetainedStore) -> None:
        self._segment = segment
        self._records = list(records)
        self._retained = retained
        self._messages: dict[int, Message] = {}
        self._runs: dict[int, PromisedRun] = {}
        for record in self._records:
            for owed in record.owed.values():
                if owed.message.segment is segment:
                    self._messages[owed.message.number] = owed.message
            for run in record.runs.values():
                if run.segment is segment:
                    self._runs[run.number] = run
        for message in retained.all():
            if message.segment is segment:
                self._messages[message.number] = message

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        messages = sum([message.size for message in self._messages.values()])
        return messages + sum([len(run.data) for run in self._runs.values()])

    def move(self, to: BlockSegment, out: BytesWriter) -> None:
        """Rewrites them for segment `to`. Until the oldest is dropped, both hold the same."""
        for run in self._runs.values():
            put_run(out, run)
            run.segment = to
            self._segment.live -= 1
            to.live += 1
        for message in self._messages.values():
            put_message(out, message)
            message.segment = to
            self._segment.live -= 1
            to.live += 1
            if self._retained.get(message.topic) is message:
                out.append(codec.RETAINED)
                put(out, message.number)
        for record in self._records:
            for owed in record.owed.values():
                if owed.message.segment is to:
                    put_owed(out, record.number, owed)
            for run in record.runs.values():
                if run.segment is to:
                    put_owed_run(out, record.number, run)
