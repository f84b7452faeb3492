"""The APIs that the Kafka face serves: one table of keys, names and versions.

Versions `first` to `last` are served. ApiVersions advertises the versions from `advertised` on. The two
differ only for Produce, because librdkafka takes a first version above 2 as a sign that the broker knows no
compression. `flexible` is the first version with compact lengths and tagged fields (KIP-482), or `NEVER` if
no version has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

NEVER: Final = 32767


class Api(Struct, frozen=True):
    """One API. `name` is the prefix of its message descriptors."""

    key: int
    name: str
    first: int
    last: int
    flexible: int
    advertised: int = -1

    def serves(self, version: int) -> bool:
        return self.first <= version <= self.last

    @property
    def advertised_first(self) -> int:
        return self.first if self.advertised < 0 else self.advertised


PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
LIST_CONFIG_RESOURCES: Final = 74
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_GROUP_DESCRIBE: Final = 77

_TABLE = (
    Api(PRODUCE, "Produce", 3, 12, 9, advertised=0),
    Api(FETCH, "Fetch", 4, 17, 12),
    Api(LIST_OFFSETS, "ListOffsets", 1, 11, 6),
    Api(METADATA, "Metadata", 0, 12, 9),
    Api(OFFSET_COMMIT, "OffsetCommit", 2, 9, 8),
    Api(OFFSET_FETCH, "OffsetFetch", 1, 9, 6),
    Api(FIND_COORDINATOR, "FindCoordinator", 0, 4, 3),
    Api(JOIN_GROUP, "JoinGroup", 0, 9, 6),
    Api(HEARTBEAT, "Heartbeat", 0, 4, 4),
    Api(LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
    Api(SYNC_GROUP, "SyncGroup", 0, 5, 4),
    Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
    Api(LIST_GROUPS, "ListGroups", 0, 5, 3),
    Api(SASL_HANDSHAKE, "SaslHandshake", 1, 1, NEVER),
    Api(API_VERSIONS, "ApiVersions", 0, 4, 3),
    Api(CREATE_TOPICS, "CreateTopics", 2, 7, 5),
    Api(DELETE_TOPICS, "DeleteTopics", 1, 6, 4),
    Api(DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    Api(INIT_PRODUCER_ID, "InitProducerId", 0, 4, 2),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4),
    Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 3, 3),
    Api(ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 3, 3),
    Api(END_TXN, "EndTxn", 0, 3, 3),
    Api(TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 3, 3),
    Api(DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2),
    Api(CREATE_ACLS, "CreateAcls", 1, 3, 2),
    Api(DELETE_ACLS, "DeleteAcls", 1, 3, 2),
    Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4),
    Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 4, 2),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    Api(CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    Api(DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    Api(ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
    Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    Api(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, NEVER),
    Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
    Api(ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
    Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
    Api(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
    Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 1, 0),
    Api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
    Api(LIST_TRANSACTIONS, "ListTransactions", 0, 1, 0),
    Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
    Api(LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
    Api(SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 1, 1, 0),
    Api(SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, 1, 0),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _TABLE})
