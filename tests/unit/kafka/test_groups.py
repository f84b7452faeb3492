"""Group APIs and offsets: the differences between versions, and the shape of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from treecast.shims.kafka import errors

JOIN = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 60_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"subscription"}, {"name": "sticky", "metadata": b"s2"}],
}


async def joined(client: Any, **more: Any) -> Any:
    """Joins and syncs a single member."""
    answer = await client.call("JoinGroup", 3, **JOIN | more)
    assert answer.error_code == 0
    sync = await client.call(
        "SyncGroup",
        5,
        group_id="g",
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": answer.member_id, "assignment": b"all of it"}],
    )
    assert (sync.error_code, sync.assignment, sync.protocol_name) == (0, b"all of it", "range")
    return answer


async def test_a_first_join_is_told_its_id(client: Any) -> None:
    required = await client.call("JoinGroup", 4, **JOIN)
    assert required.error_code == errors.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("test-")
    answer = await client.call("JoinGroup", 9, **JOIN | {"member_id": required.member_id})
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, required.member_id)
    assert (answer.protocol_name, answer.protocol_type) == ("range", "consumer")
    assert [(m.member_id, m.metadata) for m in answer.members] == [(required.member_id, b"subscription")]


async def test_a_static_member_needs_no_id(client: Any) -> None:
    answer = await client.call("JoinGroup", 5, **JOIN, group_instance_id="i")
    assert (answer.error_code, answer.members[0].group_instance_id) == (0, "i")


async def test_a_join_that_is_refused(client: Any) -> None:
    for version in range(10):
        answer = await client.call("JoinGroup", version, **JOIN | {"session_timeout_ms": 1, "member_id": "m"})
        assert (answer.error_code, answer.generation_id, answer.member_id) == (26, -1, "m")


async def test_members_leave_one_by_one_or_together(client: Any) -> None:
    member = await joined(client)
    rows = [{"member_id": "stranger"}, {"member_id": member.member_id, "reason": "done"}]
    left = await client.call("LeaveGroup", 5, group_id="g", members=rows)
    assert left.error_code == 0
    assert [(row.member_id, row.error_code) for row in left.members] == [
        ("stranger", errors.UNKNOWN_MEMBER_ID),
        (member.member_id, 0),
    ]
    alone = await client.call("LeaveGroup", 1, group_id="g", member_id="stranger")
    assert alone.error_code == errors.UNKNOWN_MEMBER_ID


async def test_groups_as_admin_tools_see_them(client: Any) -> None:
    member = await joined(client)
    (group,) = (
        await client.call("DescribeGroups", 5, groups=["g"], include_authorized_operations=True)
    ).groups
    assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
    assert group.authorized_operations == {3, 6, 8, 10, 11}
    (row,) = group.members
    assert (row.member_id, row.client_id, row.client_host) == (member.member_id, "test", "/10.1.2.3")
    assert (row.member_metadata, row.member_assignment) == (b"subscription", b"all of it")
    (dead,) = (await client.call("DescribeGroups", 2, groups=["none"])).groups
    assert (dead.error_code, dead.group_state) == (0, "Dead")

    async def listed(**filters: Any) -> list[str]:
        answer = await client.call("ListGroups", 5, **filters)
        return [group.group_id for group in answer.groups]

    assert await listed(states_filter=[], types_filter=[]) == ["g"]
    assert await listed(states_filter=["stable"], types_filter=["Classic"]) == ["g"]
    assert await listed(states_filter=["Empty"], types_filter=[]) == []
    assert await listed(states_filter=[], types_filter=["consumer"]) == []
    answer = await client.call("DeleteGroups", 2, groups_names=["g", "none"])
    assert [(row.group_id, row.error_code) for row in answer.results] == [("g", 68), ("none", 69)]


def commits(*rows: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": None}
            ],
        }
        for topic, index, offset in rows
    ]


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_and_fetched(version: int, client: Any) -> None:
    topics = commits(("topic", 0, 5), ("missing", 0, 5), ("topic", 7, 5))
    answer = await client.call("OffsetCommit", version, group_id="g", member_id="", topics=topics)
    codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    assert codes == {("topic", 0): 0, ("missing", 0): 3, ("topic", 7): 3}
    for fetch_version in (1, 2, 5, 7):
        asked = [{"name": "topic", "partition_indexes": [0, 1]}]
        fetched = await client.call("OffsetFetch", fetch_version, group_id="g", topics=asked)
        rows = [(p.partition_index, p.committed_offset, p.metadata) for p in fetched.topics[0].partitions]
        assert rows == [(0, 5, ""), (1, -1, "")]


async def test_all_offsets_of_several_groups(client: Any) -> None:
    for group, offset in (("g", 1), ("h", 2)):
        topics = commits(("topic", 1, offset))
        await client.call("OffsetCommit", 8, group_id=group, member_id="", topics=topics)
    (row,) = (await client.call("OffsetFetch", 6, group_id="h", topics=None)).topics
    assert (row.name, row.partitions[0].committed_offset) == ("topic", 2)
    groups = [{"group_id": name, "topics": None} for name in ("g", "h", "none")]
    answer = await client.call("OffsetFetch", 8, groups=groups)
    found = {g.group_id: [p.committed_offset for t in g.topics for p in t.partitions] for g in answer.groups}
    assert found == {"g": [1], "h": [2], "none": []}


async def test_a_commit_of_a_stranger(client: Any) -> None:
    await joined(client)
    answer = await client.call(
        "OffsetCommit",
        9,
        group_id="g",
        member_id="stranger",
        generation_id_or_member_epoch=1,
        topics=commits(("topic", 0, 5)),
    )
    assert answer.topics[0].partitions[0].error_code == errors.UNKNOWN_MEMBER_ID


async def test_offsets_are_deleted(client: Any) -> None:
    await client.call("OffsetCommit", 8, group_id="g", member_id="", topics=commits(("topic", 0, 5)))
    topics = [{"name": "topic", "partitions": [{"partition_index": 0}]}]
    answer = await client.call("OffsetDelete", 0, group_id="g", topics=topics)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert (await client.call("OffsetFetch", 6, group_id="g", topics=None)).topics == []


async def test_offsets_of_partitions_that_do_not_exist_are_not_deleted(client: Any) -> None:
    await client.call("OffsetCommit", 8, group_id="g", member_id="", topics=commits(("topic", 0, 5)))
    topics = [
        {"name": "topic", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "missing", "partitions": [{"partition_index": 0}]},
    ]
    answer = await client.call("OffsetDelete", 0, group_id="g", topics=topics)
    assert [[row.error_code for row in topic.partitions] for topic in answer.topics] == [[0, 3], [3]]


@pytest.mark.parametrize("lacking", ["protocol_type", "protocol_name"])
async def test_a_sync_names_the_protocol(client: Any, lacking: str) -> None:
    member = await joined(client)
    fields: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} | {lacking: None}
    fields |= {"group_id": "g", "member_id": member.member_id, "assignments": []}
    fields["generation_id"] = member.generation_id
    assert (await client.call("SyncGroup", 5, **fields)).error_code == errors.INCONSISTENT_GROUP_PROTOCOL
    assert (await client.call("SyncGroup", 4, **fields)).error_code == 0
