"""Each API in each version: a response that kafka-python reads, and a refusal in the API's own shape."""

from __future__ import annotations

import asyncio
import re
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.broker import Broker, NewTopic
from treecast.middleware.broker.local import LocalCluster
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.handlers import HANDLERS
from treecast.shims.kafka.server import KafkaFace

OFF_THE_HOT_PATH = [api for api in v.APIS.values() if api.key in HANDLERS]
ZERO = uuid.UUID(int=0)

Fields = dict[str, Any]


COMMIT = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}


def fields_of(api: str, version: int, batch: bytes, topic_id: uuid.UUID) -> Fields:
    """Returns the fields of a request that asks for something."""
    known = (
        _records_of(batch, topic_id)
        | _transactions_of()
        | _groups_of(version)
        | _topics_of(version)
        | _others()
    )
    return known[api]


def _records_of(batch: bytes, topic_id: uuid.UUID) -> dict[str, Fields]:
    return {
        "Produce": {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [{"name": "topic", "partition_data": [{"index": 0, "records": batch}]}],
        },
        "Fetch": {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 10**6,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": "topic",
                    "topic_id": topic_id,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10**6}],
                }
            ],
        },
        "ListOffsets": {
            "topics": [{"name": "topic", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        },
        "DeleteRecords": {"topics": [{"name": "topic", "partitions": [{"partition_index": 0, "offset": 0}]}]},
        "OffsetForLeaderEpoch": {
            "topics": [{"topic": "topic", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        },
        "DescribeProducers": {"topics": [{"name": "topic", "partition_indexes": [0]}]},
    }


def _transactions_of() -> dict[str, Fields]:
    return {
        "InitProducerId": {"transactional_id": None, "transaction_timeout_ms": 1000},
        "AddPartitionsToTxn": {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_topics": [{"name": "topic", "partitions": [0]}],
        },
        "AddOffsetsToTxn": {"transactional_id": "x", "group_id": "g"},
        "EndTxn": {"transactional_id": "x", "committed": True},
        "TxnOffsetCommit": {
            "transactional_id": "x",
            "group_id": "g",
            "topics": [{"name": "topic", "partitions": [COMMIT]}],
        },
        "ListTransactions": {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
        "DescribeTransactions": {"transactional_ids": ["x"]},
    }


def _groups_of(version: int) -> dict[str, Fields]:
    fetched = [{"name": "topic", "partition_indexes": [0]}]
    return {
        "OffsetCommit": {"group_id": "g", "topics": [{"name": "topic", "partitions": [COMMIT]}]},
        "OffsetFetch": {
            "groups": [{"group_id": "g", "topics": fetched}],
            "group_id": "g",
            "topics": fetched,
        },
        "FindCoordinator": {"key": "g", "coordinator_keys": ["g", "h"]},
        "JoinGroup": {
            "group_id": f"g-{version}",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0"}],
        },
        "SyncGroup": {
            "group_id": "g",
            "member_id": "m",
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        "Heartbeat": {"group_id": "g", "member_id": "m", "generation_id": 1},
        "LeaveGroup": {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]},
        "DescribeGroups": {"groups": ["g"]},
        "ListGroups": {},
        "DeleteGroups": {"groups_names": ["g"]},
        "OffsetDelete": {
            "group_id": "g",
            "topics": [{"name": "topic", "partitions": [{"partition_index": 0}]}],
        },
        "ConsumerGroupHeartbeat": {
            "group_id": f"n-{version}",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["topic"],
            "topic_partitions": [],
        },
        "ConsumerGroupDescribe": {"group_ids": ["g"]},
    }


def _topics_of(version: int) -> dict[str, Fields]:
    return {
        "Metadata": {"topics": [{"name": "topic", "topic_id": ZERO}]},
        "CreateTopics": {
            "topics": [
                {
                    "name": f"new-{version}",
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ]
        },
        "DeleteTopics": {
            "topics": [{"name": f"old-{version}", "topic_id": ZERO}],
            "topic_names": [f"old-{version}"],
            "timeout_ms": 1,
        },
        "CreatePartitions": {"topics": [{"name": "topic", "count": 3 + version, "assignments": None}]},
        "DescribeConfigs": {
            "resources": [{"resource_type": 2, "resource_name": "topic", "configuration_keys": None}]
        },
        "AlterConfigs": {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "topic",
                    "configs": [{"name": "retention.ms", "value": "5"}],
                }
            ]
        },
        "IncrementalAlterConfigs": {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "topic",
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
                }
            ]
        },
        "ElectLeaders": {"election_type": 0, "topic_partitions": [{"topic": "topic", "partitions": [0]}]},
        "ListPartitionReassignments": {"topics": None},
    }


def _others() -> dict[str, Fields]:
    return {
        "SaslHandshake": {"mechanism": "PLAIN"},
        "SaslAuthenticate": {"auth_bytes": b"\0alice\0secret"},
        "ApiVersions": {"client_software_name": "test", "client_software_version": "1.0"},
        "DescribeLogDirs": {"topics": None},
        "DescribeCluster": {},
        "DescribeAcls": {"resource_type_filter": 1, "operation": 1, "permission_type": 1},
        "CreateAcls": {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "topic",
                    "principal": "User:a",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        "DeleteAcls": {"filters": [{"resource_type_filter": 1, "operation": 1, "permission_type": 1}]},
        "ListConfigResources": {"resource_types": []},
        "DescribeClientQuotas": {"components": [], "strict": False},
        "AlterClientQuotas": {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}],
            "validate_only": True,
        },
        "DescribeUserScramCredentials": {"users": None},
        "AlterUserScramCredentials": {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []},
        "ShareGroupHeartbeat": {"group_id": "g", "member_id": "m", "member_epoch": 0},
        "ShareGroupDescribe": {"group_ids": ["g"]},
    }


async def refused(client: Any, api: str, version: int) -> set[int]:
    """Returns the codes of a response that refuses everything. kafka-python reads ApiVersions' only in
    version 0.
    """
    client.send(api, version, **fields_of(api, version, b"", ZERO))
    if api == "ApiVersions":
        return {struct.unpack_from(">h", await client.frame(), 4)[0]}
    return codes_in((await client.receive(api, version)).to_dict())


def codes_in(value: Any) -> set[int]:
    """Returns every error code of a response."""
    if isinstance(value, dict):
        own = {code for name, code in value.items() if name.endswith("error_code") and "config" not in name}
        return own.union(*(codes_in(inner) for inner in value.values()))
    if isinstance(value, list):
        return set().union(*(codes_in(inner) for inner in value))
    return set()


# The errors of requests that name an unknown member, group or transaction; all others succeed.
EXPECTED = {
    "SaslHandshake": {34},
    "SaslAuthenticate": {34},
    "DescribeAcls": {54},
    "CreateAcls": {54},
    "DeleteAcls": {54},
    "AlterUserScramCredentials": {54},
    "ElectLeaders": {84},
    "DescribeTransactions": {105},
    "Heartbeat": {25},
    "LeaveGroup": {25},
    "SyncGroup": {25},
    "ConsumerGroupDescribe": {69},
    "ShareGroupHeartbeat": {35},
    "ShareGroupDescribe": {35},
    "DeleteGroups": {69},
    "OffsetDelete": {69},
    "AddPartitionsToTxn": {49},
    "AddOffsetsToTxn": {49},
    "EndTxn": {49},
    "TxnOffsetCommit": {49},
}


@pytest.mark.parametrize("api", v.APIS.values(), ids=lambda api: api.name)
async def test_answers(api: v.Api, client: Any, broker: Broker, make_batch: Callable[..., bytes]) -> None:
    for version in range(api.first, api.last + 1):
        await broker.cluster.definitions.create_topic(NewTopic(f"old-{version}"))
        topic_id = broker.cluster.definitions.topics()["topic"].topic_id
        fields = fields_of(api.name, version, make_batch(b"value"), topic_id)
        answer = await client.call(api.name, version, **fields)
        check_codes(api.name, version, codes_in(answer.to_dict()))
        assert answer.to_dict().get("member_id") != ""
        assert client.connection._session.in_flight == 0


def check_codes(api: str, version: int, codes: set[int]) -> None:
    if api == "JoinGroup" and version >= 4:
        assert codes == {79}
    elif api == "DescribeGroups" and version >= 6:
        assert codes == {69}
    elif api == "LeaveGroup" and version >= 3:
        assert codes == {0, 25}
    elif api in EXPECTED:
        assert codes - {0} == EXPECTED[api]
    else:
        assert codes <= {0}


def install(monkeypatch: pytest.MonkeyPatch, api: v.Api, run: Any) -> None:
    handler = type(HANDLERS[api.key])(run, HANDLERS[api.key].refuse)
    # Requests that have a hot path pass their handler where the group is elsewhere.
    monkeypatch.setattr(LocalCluster, "groups_at_once", lambda cluster, group_id: None)
    monkeypatch.setattr("treecast.shims.kafka.dispatch.HANDLERS", HANDLERS | {api.key: handler})


@pytest.mark.parametrize("api", OFF_THE_HOT_PATH, ids=lambda api: api.name)
async def test_our_own_errors_are_told_in_the_shape_of_the_api(
    api: v.Api, client: Any, face: KafkaFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a handler raises, every error field of the response is -1, and the connection stays open."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken on purpose")

    install(monkeypatch, api, broken)
    for version in range(api.first, api.last + 1):
        assert await refused(client, api.name, version) == {-1}, version
    assert face.counters.protocol_errors["internal error"] == api.last - api.first + 1
    assert not client.transport.closed


@pytest.mark.parametrize("api", OFF_THE_HOT_PATH, ids=lambda api: api.name)
async def test_a_refusal_after_waiting_is_told_in_the_same_shape(
    api: v.Api, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: Any) -> Any:
        await asyncio.sleep(0)
        raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)

    install(monkeypatch, api, refuses)
    for version in range(api.first, api.last + 1):
        assert await refused(client, api.name, version) == {15}, version


def test_every_api_has_a_handler() -> None:
    assert set(HANDLERS) == set(v.APIS) - {v.PRODUCE, v.FETCH}


async def test_api_versions_lists_the_table(client: Any, broker: Broker) -> None:
    answer = await client.call("ApiVersions", 4, client_software_name="a", client_software_version="1")
    listed = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert listed[v.PRODUCE] == (0, 12)
    assert listed[v.FETCH] == (4, 17)
    assert listed == {key: (api.advertised_first, api.last) for key, api in v.APIS.items()}
    assert 56 not in listed  # AlterPartition, a call between brokers


def test_the_manual_has_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs/faces/kafka.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) \| ([\d-]+) \|", text, re.MULTILINE)
    assert rows == [
        (api.name, str(api.key), f"{api.first}-{api.last}" if api.last > api.first else str(api.first))
        for api in v.APIS.values()
    ]
