"""`LinkRecord`: the coordinator's record of logs, accessed over this host's link."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from treecast.middleware.api.entries import END, LOST, PartitionEnd
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.identity import TopicId
from treecast.middleware.relay.coordinator_link import CoordinatorLink, called

from .lost_disk import Recorded
from .ports import Claim


class LinkRecord:
    """Implements `ports.Record`."""

    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link

    async def put_ends(self, ends: Sequence[PartitionEnd]) -> None:
        messages = [END.write(one) for one in ends]
        await called(self._link.client.put_ends(self._link.session, messages))

    async def ends_of(self, topic_id: TopicId) -> Mapping[int, Recorded]:
        return (await self.all_ends([topic_id]))[topic_id]

    async def all_ends(self, topic_ids: Sequence[TopicId]) -> Mapping[TopicId, Mapping[int, Recorded]]:
        found: dict[TopicId, dict[int, Recorded]] = {topic_id: {} for topic_id in topic_ids}
        for one in await called(self._link.client.get_ends(*[topic_id.bytes for topic_id in topic_ids])):
            ended = Recorded(one.leader_epoch, one.end, one.quiet)
            found[uuid.UUID(bytes=one.topic_id)][one.partition] = ended
        return found

    async def give_up(self, topic_id: TopicId, partitions: Sequence[int]) -> None:
        client, session = self._link.client, self._link.session
        answer = await called(client.give_up(session, topic_id.bytes, partitions))
        await self._link.seen(answer.revision)

    async def accept_losses(self, topic_id: TopicId, partition: int) -> None:
        answer = await called(self._link.client.accept_losses(self._link.session, topic_id.bytes, partition))
        await self._link.seen(answer.revision)

    async def take_lead(self, claim: Claim) -> None:
        request = pb.TakeLeadRequest(
            session=self._link.session,
            topic_id=claim.topic_id.bytes,
            partition=claim.partition,
            known_epoch=claim.known_epoch,
            leader_epoch=claim.leader_epoch,
            promoted=claim.promoted,
            lost=None if claim.lost is None else LOST.write(claim.lost),
        )
        answer = await called(self._link.client.take_lead(request))
        await self._link.seen(answer.revision)
