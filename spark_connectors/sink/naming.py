"""The names under which daemons remember batches. Pure.

A committed batch is never written again, so its name must be unique. A number alone is not enough: a copied
checkpoint has the same numbers and writes elsewhere, a new one counts from 0. So the name of a whole contains
the checkpoint that numbers its batches, and their topic:

    spark/<query>/<target>               a stream: the id in its checkpoint, or queryName
    spark-batch/<name>/<query>/<target>  queryName and batchId, within foreachBatch of the stream <query>
    spark-batch/<name>/*/<target>        the same outside of a stream: only the name distinguishes it
    spark-write/<number>                 a separate write, which is never repeated

`target` is a topic with its id; `*` if a column contains the topic. Names are quoted as in URLs: `//` has a
special meaning (`broker/transactions/parts.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from msgspec import Struct

DIGEST = "; digest "  # between numbers of rows and their digest (`broker/transactions/parts.py`)
ANYTHING = "*"  # the content of a batch whose repeat need not be equal (`broker/transactions/parts.py`)
NO_ROWS = "0 rows"  # the content of a batch that has none, if one with rows was committed
MOST_TOPICS = 5  # that are named; the rest is summed up
NO_QUERY = "*"


class Batch(Struct, frozen=True):
    """The batch that a task writes a part of."""

    whole: str
    number: int

    def part(self, attempt: str) -> str:
        """Returns the transactional id of one attempt."""
        return f"{self.whole}//{self.number}/{attempt}"


def target(topic: str, topic_id: str) -> str:
    """Returns the destination of rows. A topic that is recreated under the same name has another id."""
    if not topic:
        return "*"
    return f"{quote(topic, safe='')}@{topic_id}" if topic_id else quote(topic, safe="")


def of_stream(query: str, number: int, where: str) -> Batch:
    return Batch(f"spark/{quote(query, safe='')}/{where}", number)


def of_named(name: str, query: str, number: int, where: str) -> Batch:
    """Returns a named batch. `query`: the id of the stream whose foreachBatch runs; empty: none."""
    return Batch(f"spark-batch/{quote(name, safe='')}/{quote(query, safe='') or NO_QUERY}/{where}", number)


def of_its_own(number: str) -> Batch:
    return Batch(f"spark-write/{number}", 0)


def content(rows: Mapping[str, int], digest: tuple[int, int] | None = None) -> str:
    """Returns the text by which a repeat is compared: numbers of rows per topic, and the digest of the rows
    unless there is none; empty without rows.
    """
    counted = sorted((topic, count) for topic, count in rows.items() if count)
    if not counted:
        return ""
    total = sum(count for _, count in counted)
    named = [f"{topic} {count}" for topic, count in counted[:MOST_TOPICS]]
    if len(counted) > MOST_TOPICS:
        named.append(f"{len(counted) - MOST_TOPICS} more topics")
    text = f"{total} rows: {', '.join(named)}"
    return text if digest is None else f"{text}{DIGEST}{digest[0]:08x}{digest[1]:08x}"


def summed(digests: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Returns the digest of all rows of several tasks."""
    first = second = 0
    for one, two in digests:
        first, second = (first + one) & 0xFFFFFFFF, (second + two) & 0xFFFFFFFF
    return first, second
