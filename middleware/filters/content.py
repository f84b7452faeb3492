"""Filters of subscriptions: a stateless filter as a value, for `model.wishes`.

The fields of a message are those of the record that a topic would keep of it (`records`), with `topic` in
MQTT's spelling. A message has no `partition`, and without a record no `offset` and `timestamp`: no constraint
on them holds.
"""

from __future__ import annotations

from treecast.middleware.model.records import Record

from .evaluate import check_stateless, evaluate
from .records import RecordReader
from .text import to_text
from .tree import Field, Filter, Scalar, fields

_TOPIC = Field(("topic",))
_PARTITION = Field(("partition",))
_OF_RECORDS = (Field(("offset",)), Field(("timestamp",)))  # -1: there is none


class StatelessFilter:
    """Implements `model.wishes.ContentFilter` by the reference evaluation. Filters with the same text are
    equal. The constructor raises StatefulFilterError if the filter aggregates."""

    def __init__(self, tree: Filter) -> None:
        check_stateless(tree)
        self.text = to_text(tree)
        self._tree = tree
        self._fields = tuple(fields(tree))
        self._read = RecordReader(self._fields, "", 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StatelessFilter) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def passes(self, topic: str, record: Record) -> bool:
        values: dict[Field, Scalar | None] = dict(zip(self._fields, self._read(record), strict=True))
        if _TOPIC in values:
            values[_TOPIC] = topic
        values.pop(_PARTITION, None)
        for field in _OF_RECORDS:
            if values.get(field) == -1:
                del values[field]
        return evaluate(self._tree, values.get)
