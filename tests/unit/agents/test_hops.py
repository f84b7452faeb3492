"""The loop guard's header, and what else the agent changes in a message's properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from treecast.agents.rabbitmq import hops
from treecast.shims.amqp.codec_properties import look

TEXTS = st.text(max_size=20)
FIELDS = st.dictionaries(
    st.text(min_size=1, max_size=20), st.one_of(TEXTS, st.booleans(), st.integers(0, 99))
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXTS,
        "content_encoding": TEXTS,
        "headers": FIELDS,
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": TEXTS,
        "expiration": st.integers(0, 9999).map(str),
        "message_id": TEXTS,
        "user_id": TEXTS,
        "app_id": TEXTS,
    },
)
OWN = hops.entry("cluster1", "lisbon")


def encoded(given: dict[str, object]) -> bytes:
    return commands.Basic.Properties(**given).marshal()


def decoded(data: bytes) -> dict[str, object]:
    found = header.ContentHeader()
    found.unmarshal((60).to_bytes(2, "big") + bytes(10) + data)
    return {name: value for name, value in found.properties if value not in (None, "")}


@given(PROPERTIES)
def test_a_hop_is_added_and_all_else_stays(given: dict[str, object]) -> None:
    before = encoded(given)
    seen = look(before, 0, len(before))
    after = hops.with_field(before, seen.headers_begin, seen.headers_end, hops.field(OWN))
    look(after, 0, len(after))
    assert hops.hops(after) == [OWN]
    left = decoded(after)
    headers = left.pop("headers")
    assert isinstance(headers, dict)
    assert headers.pop(hops.NAME.decode()) == ["cluster1/lisbon"]
    expected = decoded(before)
    assert headers == (expected.pop("headers", None) or {})
    assert left == expected


@given(PROPERTIES)
def test_hops_of_several_clusters_stand_one_after_another(given: dict[str, object]) -> None:
    other = hops.entry("cluster2", "oslo")
    once = hops.with_hop(encoded(given), other)
    assert hops.hops(once) == [other]
    assert hops.hops(hops.with_hop(once, OWN)) == [other, OWN]


def test_the_scan_of_deliveries_finds_a_cluster_by_the_begin_of_its_entries() -> None:
    assert hops.start("cluster1") in OWN
    assert hops.start("cluster1") not in hops.entry("cluster2", "cluster1")


@given(PROPERTIES)
def test_the_user_id_becomes_a_header(given: dict[str, object]) -> None:
    after = hops.with_user_as_header(encoded({**given, "user_id": "anna"}))
    found = decoded(after)
    headers = found.pop("headers")
    assert isinstance(headers, dict)
    assert headers.pop(hops.USER.decode()) == "anna"
    assert "user_id" not in found
    untouched = encoded({name: value for name, value in given.items() if name != "user_id"})
    assert hops.with_user_as_header(untouched) == untouched


@pytest.mark.parametrize(("cc", "keys"), [(["a", "b.c"], [b"a", b"b.c"]), ([], []), ("text", []), (None, [])])
def test_further_keys(cc: object, keys: list[bytes]) -> None:
    assert hops.further_keys(encoded({"headers": {"CC": cc}})) == keys
