"""The driver's handling of its tasks' reports: the parts that count, and the contents of the batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark")

from treecast.spark_connectors.errors import WriteError
from treecast.spark_connectors.sink import naming, writer
from treecast.spark_connectors.sink.frames import Staged
from treecast.spark_connectors.sink.options import parse_options
from treecast.spark_connectors.sink.writer import Written, finish

NOTHING = Written("", None, {}, decided=False, name=partial(naming.of_stream, "q", 3))
FIVE = "5 rows: t 5; digest 0000000500000005"
ONE, TWO = Staged("w//3/a", 7, 0), Staged("w//3/b", 8, 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Records the requests to the home: whole, batch, parts, whether it counts, contents."""
    calls: list[tuple[Any, ...]] = []

    def end_parts(
        _: object, whole: str, batch: int, parts: Any, __: float, *, committed: bool, content: str = ""
    ) -> None:
        calls.append((whole, batch, list(parts), committed, content))

    monkeypatch.setattr(writer, "end_parts", end_parts)
    return calls


def told(staged: Staged | None, rows: int, *, whole: str = "w", decided: bool = False) -> Written:
    """A report of rows whose digest is their number, twice."""
    return Written(whole, staged, {"t": rows}, decided=decided, digest=(rows, rows))


def end(messages: list[Written | None], *, committed: bool = True, **options: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t"} | options
    finish(messages, 3, parse_options(given, streaming=True), committed=committed)


def test_all_parts_count_and_all_rows(asked: list[tuple[Any, ...]]) -> None:
    end([told(ONE, 2), None, NOTHING, told(TWO, 3)])
    assert asked == [("w", 3, [ONE, TWO], True, FIVE)]


class Asked:
    """A producer at a home that has decided the batch, or not."""

    exist = True

    def __init__(self, decided: bool) -> None:
        self.decided = decided
        self.begun: list[str] = []

    def exists(self, topic: str) -> bool:
        return self.exist

    def topic_id(self, topic: str) -> str:
        return "id"

    def begin(self, part: str) -> bool:
        self.begun.append(part)
        return not self.decided

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("decided", "call"),
    [(False, ("spark/q/t@id", 3, [], False, "")), (True, ("spark/q/t@id", 3, [], True, "0 rows"))],
)
def test_a_batch_without_rows_is_no_repeat_of_one_with_rows(
    asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, decided: bool, call: tuple[Any, ...]
) -> None:
    """The part that was begun for the question is given up."""
    home = Asked(decided)
    monkeypatch.setattr(writer, "_producer", lambda _: home)
    end([None, NOTHING])
    assert asked == [call]
    assert home.begun[0].startswith("spark/q/t@id//3/empty-")
    end([NOTHING], repeatedBatch="skip")
    end([NOTHING], delivery="atLeastOnce")
    end([None])
    home.exist = False
    end([NOTHING])
    assert len(asked) == 1


def test_what_is_left_out_is_compared_and_logged(
    asked: list[tuple[Any, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    """A task that was told so writes nothing; a part that another task had staged before does not count."""
    end([told(None, 2, decided=True), told(TWO, 3)])
    assert asked == [("w", 3, [], True, FIVE)]
    assert (
        f"batch is already committed and is not written again: batch=3, transaction=w, content={FIVE}"
        in caplog.text
    )


@pytest.mark.parametrize(("option", "content"), [("skip", "*"), ("counts", "2 rows: t 2")])
def test_a_repeat_may_be_allowed_to_differ(asked: list[tuple[Any, ...]], option: str, content: str) -> None:
    """The first commit is noted in full: the option may be removed later."""
    end([told(None, 2, decided=True)], repeatedBatch=option)
    end([told(ONE, 5)], repeatedBatch=option)
    assert asked == [("w", 3, [], True, content), ("w", 3, [ONE], True, FIVE)]


def test_a_topic_that_is_made_anew_while_it_is_written_is_told(asked: list[tuple[Any, ...]]) -> None:
    with pytest.raises(WriteError, match="deleted and created again while it was written"):
        end([told(ONE, 2), told(TWO, 3, whole="other")])
    assert asked == []


def test_what_is_aborted_needs_a_task_that_has_told_whose_it_is(asked: list[tuple[Any, ...]]) -> None:
    end([None, NOTHING], committed=False)
    assert asked == []
    end([NOTHING, told(ONE, 2)], committed=False)
    assert asked == [("w", 3, [], False, "")]
