"""OffsetCommit and Heartbeat on the hot path: consumers repeat them with each poll.

A request is served here if its group's home is this host and nothing of it is refused beforehand. Everything
else is left to the handlers in `offsets` and `groups`, which answer the same requests in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treecast.middleware.broker import Cluster, CommittedOffset, GroupsAtOnce, MemberIdentity, PartitionErrors
from treecast.middleware.broker.access import Granted, Operation, ResourceKind
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition

from ..codec import RequestHeader
from ..codec_commit import (
    CommitRequest,
    decode_commit,
    decode_heartbeat,
    encode_commit_answer,
    encode_heartbeat_answer,
)
from ..errors import code_for
from ..internal import visible_topic
from ..session import Pending
from ..versions import HEARTBEAT, OFFSET_COMMIT

_MOST: Final = 64  # partitions of a commit that are served without asking the work budget
_PLACES: Final = 4096  # partitions whose names are kept

_places: Final[dict[tuple[str, int], TopicPartition]] = {}


def commit(
    cluster: Cluster, granted: Granted | None, header: RequestHeader, frame: memoryview
) -> list[Chunk] | Pending | None:
    """Begins to write the offsets. Returns None if the request is left to `offsets.offset_commit`.

    `granted`: the client's rights, None if nothing is asked of them. Raises CodecError.
    """
    request = decode_commit(frame, header.body, header.api_version)
    if request is None:
        return None
    here = cluster.groups_at_once(request.group_id)
    if here is None or not _would(granted, request.group_id):
        return None
    offsets = _offsets(cluster, granted, request)
    if offsets is None:
        return None
    pending = PendingCommit(header, request)
    member = MemberIdentity(request.member_id, request.instance_id, request.generation)
    try:
        here.commit(request.group_id, member, offsets, pending.answered)
    except TreecastError as error:
        pending.answered({}, error)
    _note(granted, request.group_id, request.topics)
    return pending if pending.answer is None else pending.answer


def _would(granted: Granted | None, group_id: str) -> bool:
    """Whether the client might read as the group, without a note in the trail: the handler may make it."""
    return granted is None or granted.would(Operation.READ, ResourceKind.GROUP, group_id)


def _note(granted: Granted | None, group_id: str, topics: Sequence[str]) -> None:
    """Notes the rights that a request has used which is served here: once for each, as its handler does."""
    if granted is None:
        return
    granted.may(Operation.READ, ResourceKind.GROUP, group_id)
    for topic in topics:
        granted.may(Operation.READ, ResourceKind.TOPIC, topic)


def _offsets(
    cluster: Cluster, granted: Granted | None, request: CommitRequest
) -> dict[TopicPartition, CommittedOffset] | None:
    """Returns the commits of a request; None if a partition is refused, if a topic has none or comes twice,
    or if there are many of them."""
    if len(request.partitions) > _MOST or len(set(request.topics)) < len(request.topics):
        return None
    offsets: dict[TopicPartition, CommittedOffset] = {}
    first = 0
    for topic, count in zip(request.topics, request.counts, strict=True):
        known = visible_topic(cluster, topic)
        if (
            count == 0
            or known is None
            or not (granted is None or granted.would(Operation.READ, ResourceKind.TOPIC, topic))
        ):
            return None
        for place in range(first, first + count):
            index = request.partitions[place]
            if not 0 <= index < known.partitions:
                return None
            offsets[_place(topic, index)] = CommittedOffset(
                request.offsets[place], request.leader_epochs[place], request.metadata[place]
            )
        first += count
    return offsets


def _place(topic: str, index: int) -> TopicPartition:
    found = _places.get((topic, index))
    if found is None:
        if len(_places) >= _PLACES:
            _places.clear()
        found = _places[topic, index] = TopicPartition(topic, index)
    return found


class PendingCommit(Pending):
    """A commit that waits for the write of its turn. `answer`: once it is there."""

    def __init__(self, header: RequestHeader, request: CommitRequest) -> None:
        super().__init__()
        self.answer: list[Chunk] | None = None
        self._correlation_id = header.correlation_id
        self._version = header.api_version
        self._request = request

    def answered(self, refused: PartitionErrors, error: TreecastError | None) -> None:
        codes = self._codes(refused, error)
        self.answer = [encode_commit_answer(self._correlation_id, self._version, self._request, codes)]
        self.finish(self.answer)

    def _codes(self, refused: PartitionErrors, error: TreecastError | None) -> list[int] | None:
        request, version = self._request, self._version
        if error is not None:
            return [code_for(error, OFFSET_COMMIT, version)] * len(request.partitions)
        if not refused:
            return None
        codes: list[int] = []
        first = 0
        for topic, count in zip(request.topics, request.counts, strict=True):
            for place in range(first, first + count):
                found = refused.get(TopicPartition(topic, request.partitions[place]))
                codes.append(0 if found is None else code_for(found, OFFSET_COMMIT, version))
            first += count
        return codes


def heartbeat(
    cluster: Cluster, granted: Granted | None, header: RequestHeader, frame: memoryview
) -> list[Chunk] | None:
    """Returns the answer; None if the request is left to `groups.heartbeat`. Raises CodecError."""
    request = decode_heartbeat(frame, header.body, header.api_version)
    if request is None:
        return None
    here = cluster.groups_at_once(request.group_id)
    if here is None or not _would(granted, request.group_id):
        return None
    member = MemberIdentity(request.member_id, request.instance_id, request.generation)
    code = _beat(here, request.group_id, member, header.api_version)
    if code is None:
        return None
    _note(granted, request.group_id, ())
    return [encode_heartbeat_answer(header.correlation_id, header.api_version, code)]


def _beat(here: GroupsAtOnce, group_id: str, member: MemberIdentity, version: int) -> int | None:
    try:
        return 0 if here.heartbeat(group_id, member) else None
    except TreecastError as error:
        return code_for(error, HEARTBEAT, version)
