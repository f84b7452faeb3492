"""Filters of subscriptions: a stateless filter as a value, for `model.wishes`.

The fields of a message are those of the record that a topic would keep of it (`records`), with `topic` in
MQTT's spelling. A message has no `partition`, and without a record no `offset` and `timestamp`: no constraint
on them holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import RecordSchema

from .evaluate import Test, check_stateless, compile_filter, evaluate
from .records import RecordReader
from .schemas.reader import SchemaReader
from .text import to_text
from .tree import Field, Filter, Scalar, fields

_TOPIC: Final = Field(("topic",))
_PARTITION: Final = Field(("partition",))
_OF_RECORDS: Final = (Field(("offset",)), Field(("timestamp",)))  # -1: there is none


class ContentReader:
    """Reads fields of messages, in the order of `wanted`, by the schema of the message's topic."""

    def __init__(self, wanted: Sequence[Field]) -> None:
        self._wanted = tuple(wanted)
        self._topics = [place for place, field in enumerate(wanted) if field == _TOPIC]
        self._never = [place for place, field in enumerate(wanted) if field == _PARTITION]
        self._places = [place for place, field in enumerate(wanted) if field in _OF_RECORDS]
        self._plain = RecordReader(self._wanted, "", 0)
        self._schema: SchemaReader | None = None  # the last one, which is most often the next one too
        self._declared = self._plain

    def read(self, topic: str, record: Record, schema: RecordSchema | None) -> list[Scalar | None] | None:
        """Returns the values; None if the message does not meet its topic's schema."""
        values = self._by(schema)(record)
        if values is None:
            return None
        for place in self._topics:
            values[place] = topic
        for place in self._never:
            values[place] = None
        for place in self._places:
            if values[place] == -1:
                values[place] = None
        return values

    def _by(self, schema: RecordSchema | None) -> RecordReader:
        if schema is None:
            return self._plain
        assert isinstance(schema, SchemaReader)
        if schema is not self._schema:
            self._schema, self._declared = schema, RecordReader(self._wanted, "", 0, schema)
        return self._declared


class StatelessFilter:
    """Implements `model.wishes.ContentFilter` by the reference evaluation. Filters with the same text are
    equal. The constructor raises StatefulFilterError if the filter aggregates."""

    def __init__(self, tree: Filter) -> None:
        check_stateless(tree)
        self.text = to_text(tree)
        self.tree = tree
        self._fields = tuple(fields(tree))
        self._reader = ContentReader(self._fields)
        self._test: Test | None = None

    @property
    def test(self) -> Test:
        """The compiled form, over the fields in order of appearance."""
        if self._test is None:
            self._test = compile_filter(self.tree)
        return self._test

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StatelessFilter) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def passes(self, topic: str, record: Record, schema: RecordSchema | None = None) -> bool:
        values = self._reader.read(topic, record, schema)
        if values is None:
            return False
        return evaluate(self.tree, dict(zip(self._fields, values, strict=True)).get)
