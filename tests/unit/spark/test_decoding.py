"""Values become columns of a schema: fitting values, other values, and the handling of the latter."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.spark_connectors.errors import DecodeError, OptionError
from treecast.spark_connectors.source.columns import Columns
from treecast.spark_connectors.source.decoding import DROP, FAIL, KEEP, DecodingMaker, decoder
from treecast.spark_connectors.source.options import parse_options
from treecast.spark_connectors.source.zones import zone_of

t = pytest.importorskip("pyspark.sql.types")


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def columns(values: list[bytes | None]) -> Columns:
    found = Columns(True)
    for place, value in enumerate(values):
        found.keys.append(b"k%d" % place)
        found.values.append(value)
        found.offsets.append(100 + place)
        found.timestamps.append(1000 * place)
        found.timestamp_types.append(0)
        found.headers.append([("h", b"%d" % place)] if place else None)
    return found


def rows(
    wanted: t.StructType,
    values: list[bytes | None],
    *,
    form: str = "json",
    layout: str = "",
    mode: str = FAIL,
    zone: str = "UTC",
) -> list[dict[str, Any]]:
    decode = decoder(wanted, form, layout, zone=zone_of(zone), partly=mode == KEEP)
    maker = DecodingMaker(wanted, decode, mode, "t", 3)
    return maker.make(columns(values)).to_pylist()


N = schema(n=t.IntegerType())


def test_json_of_all_kinds() -> None:
    inner = schema(a=t.LongType(), b=t.StringType())
    wanted = schema(
        n=t.IntegerType(),
        x=t.DoubleType(),
        ok=t.BooleanType(),
        s=t.StringType(),
        d=t.DateType(),
        when=t.TimestampType(),
        price=t.DecimalType(10, 2),
        inner=inner,
        many=t.ArrayType(inner),
        by=t.MapType(t.StringType(), t.FloatType()),
        absent=t.StringType(),
    )
    value = {
        "n": 5, "x": 2, "ok": True, "s": "ä", "d": "2026-11-21", "when": "2026-11-21T10:00:00Z",
        "price": "1.50", "inner": {"a": 1, "z": 0}, "many": [{"b": "q"}, None], "by": {"k": 0.5},
    }  # fmt: skip
    (row,) = rows(wanted, [json.dumps(value).encode()])
    assert (row["n"], row["x"], row["ok"], row["s"], row["absent"]) == (5, 2.0, True, "ä", None)
    assert (row["d"], row["price"]) == (datetime.date(2026, 11, 21), decimal.Decimal("1.50"))
    assert row["when"] == datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC)
    assert (row["inner"], row["many"]) == ({"a": 1, "b": None}, [{"a": None, "b": "q"}, None])
    assert dict(row["by"]) == {"k": 0.5}


def test_fields_of_the_record() -> None:
    header = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
    wanted = schema(
        n=t.IntegerType(),
        _key=t.BinaryType(),
        _value=t.BinaryType(),
        _topic=t.StringType(),
        _partition=t.IntegerType(),
        _offset=t.LongType(),
        _timestamp=t.TimestampType(),
        _headers=t.ArrayType(header),
    )
    first, second = rows(wanted, [b'{"n": 1}', b'{"n": 2}'])
    assert (first["_key"], first["_topic"], first["_partition"], first["_offset"]) == (b"k0", "t", 3, 100)
    assert (first["_headers"], second["_headers"]) == (None, [{"key": "h", "value": b"1"}])
    assert second["_timestamp"].timestamp() == 1
    assert second["_value"] == b'{"n": 2}'


BAD: list[bytes | None] = [
    b'{"n": 1}',
    b'{"n": "1"}',
    None,
    b"{",
    b"\xff",
    b"[]",
    b'{"n": 2147483648}',
    b'{"n": 9}',
]


def test_what_cannot_be_decoded_fails_the_query() -> None:
    with pytest.raises(
        DecodeError, match=r"t-3: the value at offset 101 does not fit the schema: .*DROPMALFORMED"
    ):
        rows(N, BAD)


def test_or_is_dropped() -> None:
    assert rows(N, BAD, mode=DROP) == [{"n": 1}, {"n": 9}]


def test_or_is_kept() -> None:
    wanted = schema(n=t.IntegerType(), _value=t.BinaryType())
    assert rows(wanted, BAD, mode=KEEP) == [
        {"n": n, "_value": value} for n, value in zip([1, *[None] * 6, 9], BAD, strict=True)
    ]


PARTLY = {
    '{"n":"x","s":"keep"}': {"s": "keep"},
    '{"n":1.5,"s":"k"}': {"s": "k"},
    '{"n":99999999999,"s":"k"}': {"s": "k"},
    '{"o":{"x":"bad","y":"ok"},"n":1}': {"n": 1, "o": {"x": None, "y": "ok"}},
    '{"o":5,"n":1}': {"n": 1},
    '{"l":[1,"x",3],"n":1}': {"n": 1},
    '{"l":5,"n":1}': {"n": 1},
    '{"m":{"k":1,"z":"bad"},"n":1}': {"n": 1},
    '{"many":[{"x":1,"y":5.5},{"x":"2"},null],"n":1,"s":2.5}': {
        "n": 1,
        "many": [{"x": 1, "y": None}, {"x": None, "y": None}, None],
    },
    '{"t":"nonsense","n":1}': {"n": 1},
    '{"t":"2026-07-01T12:00:00","n":"x"}': {"t": datetime.datetime(2026, 7, 1, 16, tzinfo=datetime.UTC)},
    '{"d":"2026-13-01","n":1}': {"n": 1},
    '{"p":99999.1,"n":1}': {"n": 1},
    '{"p":"1.235","n":"x"}': {"p": decimal.Decimal("1.24")},
    '{"b":"true","n":1}': {"n": 1},
    "[1]": {},
    "notjson": {},
    '{"n":1': {},
    "null": {},
}


def test_of_what_is_kept_all_is_there_that_fits() -> None:
    """As with `from_json`; tests/clients/test_spark.py compares with Spark."""
    inner = schema(x=t.IntegerType(), y=t.StringType())
    wanted = schema(
        n=t.IntegerType(),
        s=t.StringType(),
        o=inner,
        l=t.ArrayType(t.IntegerType()),
        m=t.MapType(t.StringType(), t.IntegerType()),
        many=t.ArrayType(inner),
        t=t.TimestampType(),
        d=t.DateType(),
        p=t.DecimalType(5, 2),
        b=t.BooleanType(),
    )
    found = rows(wanted, [value.encode() for value in PARTLY], mode=KEEP, zone="America/New_York")
    nothing = dict.fromkeys(wanted.names)
    for value, row in zip(PARTLY, found, strict=True):
        assert row == nothing | PARTLY[value], value
    with pytest.raises(DecodeError):
        rows(wanted, [next(iter(PARTLY)).encode()])


@pytest.mark.parametrize(
    ("zone", "text", "hour"),
    [
        ("America/New_York", "2026-07-01T12:00:00", 16),
        ("America/New_York", "2026-01-01 12:00:00", 17),
        ("America/New_York", "2026-03-08T02:30:00", 7),  # no such time: the clock goes from 2 to 3
        ("America/New_York", "2026-11-01T01:30:00", 5),  # two such times: the first one counts
        ("America/New_York", "2026-07-01T12:00:00Z", 12),
        ("America/New_York", "2026-07-01T12:00:00+02:00", 10),
        ("+02:00", "2026-07-01T12:00:00", 10),
        ("GMT-3", "2026-07-01T12:00:00", 15),
        ("UTC", "2026-07-01T12:00:00", 12),
    ],
)
def test_timestamps_without_a_zone_are_in_that_of_the_session(zone: str, text: str, hour: int) -> None:
    inner = schema(at=t.TimestampType())
    wanted = schema(
        at=t.TimestampType(),
        o=inner,
        many=t.ArrayType(t.TimestampType()),
        by=t.MapType(t.StringType(), t.TimestampType()),
        plain=t.TimestampNTZType(),
    )
    plain = text[:19]
    value = {"at": text, "o": {"at": text}, "many": [text, None], "by": {"k": text}, "plain": plain}
    for mode in (FAIL, KEEP):
        (row,) = rows(wanted, [json.dumps(value).encode()], zone=zone, mode=mode)
        found = row["at"]
        assert found.utcoffset() == datetime.timedelta(0)
        assert found.hour == hour
        assert (row["o"], row["many"], dict(row["by"])) == ({"at": found}, [found, None], {"k": found})
        assert row["plain"] == datetime.datetime.fromisoformat(plain)


def test_decimals_are_rounded_to_their_scale_and_fit_or_not() -> None:
    wanted = schema(p=t.DecimalType(5, 2))
    values = [b'{"p": 1.235}', b'{"p": "-999.99"}', b'{"p": 999.995}', b'{"p": 1e9}', b'{"p": "x"}']
    found = [row["p"] for row in rows(wanted, list(values), mode=KEEP)]
    assert found == [decimal.Decimal("1.24"), decimal.Decimal("-999.99"), None, None, None]
    assert len(rows(wanted, list(values), mode=DROP)) == 2


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False), st.binary(max_size=4)))
)
def test_fixed_layouts(found: list[tuple[int, float, bytes]]) -> None:
    wanted = schema(n=t.LongType(), x=t.DoubleType(), s=t.BinaryType())
    values: list[bytes | None] = [struct.pack(">id4s", *row) for row in found]
    read = rows(wanted, values, form="fixed", layout=">id4s")
    assert [(row["n"], row["x"], row["s"]) for row in read] == [
        (n, x, s.ljust(4, b"\0")) for n, x, s in found
    ]


def test_values_of_another_size() -> None:
    read = rows(N, [b"\1\0\0\0", b"", b"\1\0\0\0\0"], form="fixed", layout="<i", mode=KEEP)
    assert [row["n"] for row in read] == [1, None, None]


@pytest.mark.parametrize(
    ("wanted", "form", "layout", "message"),
    [
        (
            schema(n=t.IntegerType()),
            "fixed",
            "<q",
            "n is int in the schema, but q in the layout, which is bigint",
        ),
        (schema(n=t.IntegerType()), "fixed", "<2i", "has 2 fields, the schema has 1: n"),
        (schema(n=t.IntegerType()), "fixed", "i", "layout is a byte order"),
        (schema(n=t.IntegerType()), "fixed", "<i4", "layout is a byte order"),
        (schema(n=t.IntegerType()), "fixed", "<x", "there is x"),
        (
            schema(_offset=t.IntegerType(), n=t.LongType()),
            "json",
            "",
            "_offset of the schema is bigint, not int",
        ),
        (schema(_offset=t.LongType()), "json", "", "no field of the value"),
        (schema(n=t.DayTimeIntervalType()), "json", "", "JSON has nothing for n"),
    ],
)
def test_schemas_that_do_not_fit(wanted: t.StructType, form: str, layout: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        decoder(wanted, form, layout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "FAILFAST"}, "mode goes with format, which is json or fixed"),
        ({"format": "xml"}, "format is json or fixed, not 'xml'"),
        ({"format": "fixed"}, "layout goes with format fixed"),
        ({"format": "json", "layout": "<i"}, "layout goes with format fixed"),
        ({"format": "json", "timeZone": "Nowhere/Else"}, "timeZone: 'Nowhere/Else' is no time zone"),
        ({"timeZone": "UTC"}, "timeZone goes with format json"),
        ({"format": "json", "mode": "SKIP"}, "mode is failfast or dropmalformed or permissive"),
    ],
)
def test_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options({"subscribe": "t"} | options, streaming=True)
    assert (
        parse_options({"subscribe": "t", "format": "json", "mode": "permissive"}, streaming=True).mode == KEEP
    )
