"""Names of batches: different batches never share a name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.broker.transactions.parts import ANYTHING, DIGEST, Part, part_of
from treecast.spark_connectors.sink import naming

texts = st.text(alphabet="/*-~@a\u00e4", max_size=4)
topics = st.text(alphabet="ab.-_", min_size=1, max_size=5)
targets = st.builds(naming.target, topics, st.sampled_from(["", "id-1", "id-2"])) | st.just("*")
numbers = st.integers(0, 10**9)
streams = st.builds(lambda *given: (naming.of_stream(*given), given), texts, numbers, targets)
named = st.builds(lambda *given: (naming.of_named(*given), given), texts, texts, numbers, targets)


@given(streams | named, streams | named)
def test_names_tell_batches_apart(one: tuple[naming.Batch, object], two: tuple[naming.Batch, object]) -> None:
    assert (one[0] == two[0]) == (one[1] == two[1])


@given(streams | named, texts.filter(bool))
def test_what_a_task_writes_is_a_part_of_its_batch(one: tuple[naming.Batch, object], attempt: str) -> None:
    batch = one[0]
    assert part_of(batch.part(attempt)) == Part(batch.whole, batch.number, attempt)


def test_where_it_goes_is_in_the_name() -> None:
    assert naming.of_stream("q", 3, naming.target("t", "x")) == naming.Batch("spark/q/t@x", 3)
    assert naming.of_named("n", "", 3, naming.target("", "")) == naming.Batch("spark-batch/n/*/*", 3)


def test_what_a_batch_holds() -> None:
    assert naming.content({}) == naming.content({"t": 0}) == ""
    assert naming.content({"u": 2, "t": 3}) == "5 rows: t 3, u 2"
    many = {f"t{n}": n for n in range(10)}
    assert naming.content(many) == "45 rows: t1 1, t2 2, t3 3, t4 4, t5 5, 4 more topics"
    assert naming.content({"t": 3}, (0xABC, 1)) == naming.content({"t": 3}) + "; digest 00000abc00000001"
    assert naming.content({}, (1, 2)) == ""
    assert (naming.ANYTHING, naming.DIGEST) == (ANYTHING, DIGEST)


def test_the_digest_of_a_batch_is_the_sum_over_its_tasks() -> None:
    assert naming.summed([]) == (0, 0)
    assert naming.summed([(2**32 - 1, 1), (2, 5), (0, 0)]) == (1, 6)
