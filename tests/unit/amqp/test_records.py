"""Messages as records of streams, and back."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from treecast.middleware.broker.bridge.recording import BATCH_HEAD, bound_of
from treecast.middleware.broker.queues import Run, message, messages
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.amqp.codec_methods import read_table
from treecast.shims.amqp.codec_properties import HEADERS_BIT, MODE_BIT, values
from treecast.shims.amqp.records import headers_of as shown_headers
from treecast.shims.amqp.records import records_of, runs_of

Properties = commands.Basic.Properties
LONGEST = st.binary(max_size=40)


def encoded(**properties: object) -> bytes:
    return header.ContentHeader(0, 0, Properties(**properties)).marshal()[12:]  # type: ignore[arg-type]


def record_of(exchange: bytes, key: bytes, properties: bytes, body: bytes) -> Record:
    (record,) = records_of(Run(exchange, key, message(properties, body), 1, len(body)), 5)
    return record


def placed(record: Record, offset: int) -> Record:
    return Record(record.key, record.value, record.headers, record.timestamp, offset)


def headers_of(properties: bytes) -> dict[str, object]:
    return read_table(values(properties)[HEADERS_BIT])


def test_a_message_comes_back_as_it_was() -> None:
    given = encoded(content_type="text/plain", headers={"n": 1, "nested": {"a": [1, None]}}, message_id="m")
    record = placed(record_of(b"x", b"a.b", given, b"body"), 77)
    assert (record.key, record.value, record.timestamp) == (None, b"body", 5)
    shown = dict(record.headers)
    assert (shown["n"], shown["mqtt.content-type"]) == (b"1", b"text/plain")
    assert (shown["amqp.exchange"], shown["amqp.key"]) == (b"x", b"a.b")
    (run,) = runs_of([record], b"stream")
    ((properties, body),) = messages(run.data)
    assert (run.exchange, run.key, body) == (b"x", b"a.b", b"body")
    assert headers_of(properties) == {"n": 1, "nested": {"a": [1, None]}, "x-stream-offset": 77}
    before, after = values(given), values(properties)
    assert {bit: before[bit] for bit in before if bit != HEADERS_BIT} == {
        bit: after[bit] for bit in after if bit != HEADERS_BIT
    }


def test_headers_that_are_text_or_numbers_are_shown_as_text() -> None:
    given = {
        "s": "x",
        "i": 5,
        "f": 0.5,
        "d": Decimal("1.50"),
        "t": True,
        "n": None,
        "a": [1],
        "b": bytearray(b"x"),
    }
    shown = shown_headers(encoded(headers=given))
    assert dict(shown) == {"s": b"x", "i": b"5", "f": b"0.5", "d": b"1.50"}


def test_a_record_of_another_face_is_a_persistent_message_to_the_stream() -> None:
    record = Record(b"k", None, (("h", b"v"), ("amqp.key", b"not ours")), 5, 3)
    (run,) = runs_of([record], b"stream")
    ((properties, body),) = messages(run.data)
    assert (run.exchange, run.key, body) == (b"", b"stream", b"")
    assert headers_of(properties) == {"h": "v", "x-stream-offset": 3}
    assert values(properties)[MODE_BIT] == b"\x02"


def test_headers_that_are_not_ours_do_no_harm() -> None:
    long = b"x" * 300
    for wrong in (b"!", b64encode(b"\xff\xff\xff"), b64encode(b"\x20\x00\x00\x00\x00\x09\x01"), long):
        record = Record(None, b"", (("amqp.exchange", long), ("amqp.properties", wrong)), 5, 3)
        (run,) = runs_of([record], b"stream")
        ((properties, _),) = messages(run.data)
        assert len(run.exchange) <= 255
        assert headers_of(properties)["x-stream-offset"] == 3


def test_an_offset_that_a_publisher_claims_is_replaced() -> None:
    claimed = encoded(headers={"x-stream-offset": 1, "a": "b"})
    (run,) = runs_of([placed(record_of(b"", b"s", claimed, b""), 9)], b"s")
    ((properties, _),) = messages(run.data)
    assert headers_of(properties) == {"a": "b", "x-stream-offset": 9}


@given(st.lists(st.tuples(st.sampled_from([b"", b"x"]), st.sampled_from([b"k", b"l"]), LONGEST), max_size=30))
def test_runs_are_their_messages_in_order(sent: list[tuple[bytes, bytes, bytes]]) -> None:
    records = [
        placed(record_of(exchange, key, b"\0\0", body), offset)
        for offset, (exchange, key, body) in enumerate(sent)
    ]
    found = []
    for run in runs_of(records, b"s"):
        assert run.count == len(messages(run.data))
        assert run.size == sum(len(body) for _, body in messages(run.data))
        found += [(run.exchange, run.key, body) for _, body in messages(run.data)]
    assert found == sent
    assert message(b"\0\0", b"") == bytes(3) + b"\2" + bytes(6)


GIVEN = [
    b"\0\0",
    encoded(delivery_mode=2),
    encoded(headers={"a": "b"}, message_id="x-stream-offsetl"),
    encoded(headers={"a": "c"}, content_type="t", app_id="x"),
    encoded(headers={"x-stream-offset": 7}, priority=3),
]


@given(
    st.lists(st.tuples(st.sampled_from(GIVEN), LONGEST), min_size=1, max_size=20), st.integers(0, 2**63 - 100)
)
def test_each_message_of_a_run_keeps_its_properties(sent: list[tuple[bytes, bytes]], first: int) -> None:
    data = b"".join([message(properties, body) for properties, body in sent])
    records = records_of(Run(b"x", b"k", data, len(sent), sum(len(body) for _, body in sent)), 5)
    (run,) = runs_of([placed(record, first + number) for number, record in enumerate(records)], b"s")
    for number, ((before, body), (after, got)) in enumerate(zip(sent, messages(run.data), strict=True)):
        assert got == body
        shown = read_table(values(before)[HEADERS_BIT]) if HEADERS_BIT in values(before) else {}
        assert headers_of(after) == {**shown, "x-stream-offset": first + number}
        others = [
            {bit: one[bit] for bit in one if bit != HEADERS_BIT} for one in map(values, (before, after))
        ]
        assert others[0] == others[1]


@given(
    st.lists(
        st.tuples(
            st.none() | LONGEST,
            LONGEST,
            st.lists(st.tuples(st.text(max_size=9), st.none() | LONGEST), max_size=3),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_a_batch_does_not_exceed_what_was_reckoned(
    parts: list[tuple[bytes | None, bytes, list[tuple[str, bytes | None]]]],
) -> None:
    records = [Record(key, value, tuple(headers), 5) for key, value, headers in parts]
    assert len(build_batch(records)) <= BATCH_HEAD + sum(map(bound_of, records))
