"""The hot path of OffsetCommit and Heartbeat answers what their handlers do, and leaves the rest to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.kafka.test_groups import joined

from treecast.middleware.broker.access import AllowAll, Granted, Trail
from treecast.middleware.broker.local import LocalCluster
from treecast.middleware.model.principal import Principal
from treecast.shims.kafka import errors
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.codec import decode_request_header
from treecast.shims.kafka.handlers.repeated import PendingCommit
from treecast.shims.kafka.session import Pending

COMMITS = range(v.APIS[v.OFFSET_COMMIT].first, v.APIS[v.OFFSET_COMMIT].last + 1)
HEARTBEATS = range(v.APIS[v.HEARTBEAT].first, v.APIS[v.HEARTBEAT].last + 1)
LONG = "m" * 5_000  # more metadata than is allowed


def part(index: int, offset: int = 5, metadata: str | None = "note") -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}


def topics(*parts: dict[str, Any], name: str = "topic") -> list[dict[str, Any]]:
    return [{"name": name, "partitions": list(parts)}]


async def answered(outcome: Any) -> list[bytes] | None:
    """Returns what a client gets, after a wait if need be."""
    if isinstance(outcome, PendingCommit) and outcome.answer is not None:
        outcome = outcome.answer
    if isinstance(outcome, Pending):
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        outcome.deliver = lambda _, buffers: done.set_result(buffers)
        outcome = await asyncio.wait_for(done, 20)
    return None if outcome is None else [bytes(buffer) for buffer in outcome]


async def both(client: Any, api: str, version: int, **fields: Any) -> tuple[Any, Any]:
    """Returns the answers of the hot path (None: it leaves the request) and of the handler."""
    frame = memoryview(bytearray(client.request(api, version, **fields))[4:])
    header, dispatcher = decode_request_header(frame), client.connection._dispatcher
    hot = await answered(dispatcher._repeated(header, frame, None))
    return hot, await answered(dispatcher._handle(client.connection, header, frame))


@pytest.mark.parametrize("version", COMMITS)
async def test_commits_are_answered_as_the_handler_answers_them(client: Any, version: int) -> None:
    member = await joined(client)
    who = {"group_id": "g", "member_id": member.member_id, "generation_id_or_member_epoch": 1}
    named = {"group_id": "g", "member_id": "m", "group_instance_id": "stranger"} if version >= 7 else who
    for fields in (
        who | {"topics": topics(part(0), part(1, metadata=None))},
        who | {"topics": topics(part(0), part(1, metadata=LONG), part(0))},
        who | {"topics": topics(part(0, metadata=LONG))},
        who | {"topics": []},
        who | {"generation_id_or_member_epoch": 7, "topics": topics(part(0))},
        who | {"member_id": "stranger", "topics": topics(part(0))},
        named | {"topics": topics(part(0))},
        {"group_id": "", "member_id": "", "topics": topics(part(0))},
        {"group_id": "new", "member_id": "m", "generation_id_or_member_epoch": 3, "topics": topics(part(0))},
        {"group_id": "alone", "member_id": "", "topics": topics(part(1, 9))},
    ):
        hot, handler = await both(client, "OffsetCommit", version, **fields)
        assert hot is not None
        assert hot == handler


@pytest.mark.parametrize("version", COMMITS)
async def test_commits_that_are_left_to_the_handler(client: Any, version: int) -> None:
    who = {"group_id": "g", "member_id": ""}
    for fields in (
        who | {"topics": topics(part(0), name="unknown")},
        who | {"topics": topics(part(0), part(99))},
        who | {"topics": topics(part(-1))},
        who | {"topics": topics()},
        who | {"topics": topics(part(0)) + topics(part(1))},
        who | {"topics": topics(*[part(0, n) for n in range(65)])},
        who | {"topics": topics(part(0, metadata="\ufffd"))},
    ):
        hot, handler = await both(client, "OffsetCommit", version, **fields)
        assert hot is None
        assert handler is not None


@pytest.mark.parametrize("version", HEARTBEATS)
async def test_heartbeats_are_answered_as_the_handler_answers_them(client: Any, version: int) -> None:
    member = await joined(client)
    who = {"group_id": "g", "member_id": member.member_id, "generation_id": 1}
    for fields in (
        who,
        who | {"generation_id": 2},
        who | {"member_id": "stranger"},
        who | {"group_id": "unknown"},
        who | {"group_id": ""},
        who | ({"group_instance_id": "stranger"} if version >= 3 else {}),
    ):
        hot, handler = await both(client, "Heartbeat", version, **fields)
        assert hot is not None
        assert hot == handler


async def test_rights_are_noted_once_by_who_serves_the_request(client: Any) -> None:
    dispatcher, trail = client.connection._dispatcher, Trail()
    granted = Granted(AllowAll(), Principal("alice"), trail, "kafka")

    async def noted(api: str, **fields: Any) -> dict[str, int] | None:
        """Returns the noted uses; None if the request is left to the handler, with nothing noted."""
        frame = memoryview(bytearray(client.request(api, 2, group_id="g", **fields))[4:])
        hot = await answered(dispatcher._repeated(decode_request_header(frame), frame, granted))
        found = {row.resource: row.count for row in trail.take()}
        assert hot is not None or not found
        return found if hot is not None else None

    assert await noted("OffsetCommit", member_id="", topics=topics(part(0), part(99))) is None
    assert await noted("OffsetCommit", member_id="", topics=topics(part(0), name="unknown")) is None
    once = {"group g": 1, "topic topic": 1}
    assert await noted("OffsetCommit", member_id="", topics=topics(part(0), part(1))) == once
    assert await noted("Heartbeat", member_id="stranger", generation_id=1) == {"group g": 1}


async def test_commits_of_a_turn_are_one_write_and_no_task_each(client: Any, broker: Any) -> None:
    dispatcher, log = client.connection._dispatcher, broker._open.tables._log
    before = log.number
    waiting = []
    for number in range(20):
        framed = client.request(
            "OffsetCommit", 8, group_id=f"g{number}", member_id="", topics=topics(part(0, number))
        )
        frame = memoryview(bytearray(framed)[4:])
        waiting.append(dispatcher._repeated(decode_request_header(frame), frame, None))
    assert len(dispatcher._tasks) == 0
    assert all([await answered(outcome) for outcome in waiting])
    assert log.number == before + 1


async def test_a_commit_is_seen_by_a_fetch_right_behind_it(client: Any) -> None:
    fetch = {"group_id": "g", "topics": [{"name": "topic", "partition_indexes": [0]}]}
    for offset in range(5):
        asked = {"group_id": "g", "member_id": "", "topics": topics(part(0, offset))}
        commit = client.request("OffsetCommit", 7, **asked)
        client.feed(commit + client.request("OffsetFetch", 5, **fetch))
        committed = await client.receive("OffsetCommit", 7)
        assert committed.topics[0].partitions[0].error_code == errors.NONE
        found = await client.receive("OffsetFetch", 5)
        assert found.topics[0].partitions[0].committed_offset == offset


@pytest.mark.parametrize("api", ["OffsetCommit", "Heartbeat"])
async def test_an_error_of_the_hot_path_leaves_the_request_to_the_handler(
    client: Any, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(LocalCluster, "groups_at_once", broken)
    fields = {"topics": topics(part(0))} if api == "OffsetCommit" else {"generation_id": 1}
    answer = await client.call(api, 2, group_id="g", member_id="", **fields)
    if api == "OffsetCommit":
        assert answer.topics[0].partitions[0].error_code == errors.NONE
    else:
        assert answer.error_code == errors.UNKNOWN_MEMBER_ID
