"""Which batch a task writes a part of: the names under which daemons remember batches. Pure.

A batch that was committed is never written again, so its name must not be that of another one. A number
alone says little: a copied checkpoint has the same numbers and writes elsewhere, a new one counts from 0. So
the name of a whole holds the checkpoint that numbers its batches, and the topic that they go to:

    spark/<query>/<target>               a stream: the id in its checkpoint, or queryName
    spark-batch/<name>/<query>/<target>  queryName and batchId, within foreachBatch of the stream <query>
    spark-batch/<name>/*/<target>        the same outside of a stream: the name alone tells it from others
    spark-write/<number>                 a write of its own, which nobody repeats

`target` is a topic with its id; `*` where a column says the topic. Names are quoted as in URLs: a `//` in
them would have a meaning (`broker/transactions/parts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct

ANYTHING = "*"  # what a batch holds that need not be what it held (`broker/transactions/parts.py`)
MOST_TOPICS = 5  # that are named; the rest is summed up
NO_QUERY = "*"


class Batch(Struct, frozen=True):
    """What a task writes a part of."""

    whole: str
    number: int

    def part(self, attempt: str) -> str:
        """Returns the transactional id of one attempt."""
        return f"{self.whole}//{self.number}/{attempt}"


def target(topic: str, topic_id: str) -> str:
    """Where rows go. A topic that is made anew under the same name has another id."""
    if not topic:
        return "*"
    return f"{quote(topic, safe='')}@{topic_id}" if topic_id else quote(topic, safe="")


def of_stream(query: str, number: int, where: str) -> Batch:
    return Batch(f"spark/{quote(query, safe='')}/{where}", number)


def of_named(name: str, query: str, number: int, where: str) -> Batch:
    """`query`: the id of the stream whose foreachBatch it is; empty: there is none."""
    return Batch(f"spark-batch/{quote(name, safe='')}/{quote(query, safe='') or NO_QUERY}/{where}", number)


def of_its_own(number: str) -> Batch:
    return Batch(f"spark-write/{number}", 0)


def content(rows: Mapping[str, int]) -> str:
    """Returns how many rows go to which topic, as a repeat is compared by; empty if there are none."""
    counted = sorted((topic, count) for topic, count in rows.items() if count)
    if not counted:
        return ""
    total = sum(count for _, count in counted)
    named = [f"{topic} {count}" for topic, count in counted[:MOST_TOPICS]]
    if len(counted) > MOST_TOPICS:
        named.append(f"{len(counted) - MOST_TOPICS} more topics")
    return f"{total} rows: {', '.join(named)}"
