"""DescribeConfigs as kafka-python reads and writes it, for the schema of a topic."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from treecast.middleware.load.frames import LoadError
from treecast.middleware.model.topic_schema import SCHEMA
from treecast.spark_connectors.source.declared import parse_setting, setting_request

VERSION = 4


def test_a_request() -> None:
    read: Any = DescribeConfigsRequest.decode(
        setting_request("orders"), version=VERSION, header=True, framed=True
    )
    (resource,) = read.resources
    assert (resource.resource_type, resource.resource_name) == (2, "orders")
    assert list(resource.configuration_keys) == [SCHEMA]
    assert (read.include_synonyms, read.include_documentation) == (False, False)


def answer(error: int, **settings: str | None) -> bytes:
    result = DescribeConfigsResponse.DescribeConfigsResult
    row = result.DescribeConfigsResourceResult
    synonym = row.DescribeConfigsSynonym
    configs = [
        row(
            name=name,
            value=value,
            read_only=False,
            config_source=1,
            is_sensitive=False,
            synonyms=[synonym(name=name, value=value, source=1, version=VERSION)],
            config_type=2,
            documentation=None,
            version=VERSION,
        )
        for name, value in settings.items()
    ]
    made = result(
        error_code=error,
        error_message=None,
        resource_type=2,
        resource_name="orders",
        configs=configs,
        version=VERSION,
    )
    response: Any = DescribeConfigsResponse(throttle_time_ms=0, results=[made], version=VERSION)
    return bytes(b"\0\0\0\0\0" + response.encode())


@pytest.mark.parametrize(
    ("settings", "found"),
    [({SCHEMA: "{}"}, "{}"), ({"other": "x", SCHEMA: "{}"}, "{}"), ({}, ""), ({SCHEMA: None}, "")],
)
def test_an_answer(settings: dict[str, str | None], found: str) -> None:
    assert parse_setting(answer(0, **settings)) == found


def test_an_answer_that_ends_too_soon() -> None:
    whole = answer(0, **{SCHEMA: "{}"})
    for end in range(whole.index(b"{}") + 2):
        with pytest.raises(LoadError):
            parse_setting(whole[:end])


def test_somebody_without_the_right_sees_no_schema() -> None:
    assert parse_setting(answer(29)) == ""
