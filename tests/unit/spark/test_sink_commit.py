"""The driver's handling of its tasks' reports: the parts that count, and the contents of the batch."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from treecast.spark_connectors.errors import WriteError
from treecast.spark_connectors.sink import writer
from treecast.spark_connectors.sink.frames import Staged
from treecast.spark_connectors.sink.options import parse_options
from treecast.spark_connectors.sink.writer import NOTHING, Written, finish

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


def test_a_batch_without_rows_is_no_ones_business(asked: list[tuple[Any, ...]]) -> None:
    end([NOTHING, None])
    assert asked == []


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
