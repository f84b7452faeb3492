"""`Lease`: the one agent that carries a way. It is the only member of a consumer group at the target.

Offsets of the way are committed as this member, so an agent that has lost the group commits nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from treecast.agents.kafka.groups import KafkaGroups
from treecast.middleware.broker.values import (
    NOBODY,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    SyncGroup,
)
from treecast.middleware.model.errors import Fault, TreecastError

SESSION_SECONDS: Final = 6.0  # the least that a broker allows by default
_GRACE_SECONDS: Final = 3.0  # until a coordinator has noticed
_BEAT_SECONDS: Final = 1.5
_PROTOCOL: Final = (("treecast", b""),)
_KIND: Final = "treecast-bridge"


class HeldElsewhere(Exception):
    """Another agent carries the way. The text says what to do."""


class Lease:
    """In use from `take` to `leave`. Refusals are TreecastErrors."""

    def __init__(self, groups: KafkaGroups, group: str, client_id: str) -> None:
        self.member = NOBODY
        self._groups = groups
        self._group = group
        self._client_id = client_id

    async def take(self) -> None:
        """Becomes the only member. Raises HeldElsewhere, after the time in which a dead one is forgotten."""
        deadline = asyncio.get_running_loop().time() + SESSION_SECONDS + _GRACE_SECONDS
        while others := await self._others():
            if asyncio.get_running_loop().time() > deadline:
                raise HeldElsewhere(
                    f"the group {self._group} has the member {others[0]}: another agent carries this way,"
                    " stop one of them"
                )
            await asyncio.sleep(_BEAT_SECONDS / 3)
        await self._join()

    async def _others(self) -> list[str]:
        """Returns the other members, by their client's id."""
        try:
            found = await self._groups.describe(self._group)
        except TreecastError as error:
            if error.fault is Fault.GROUP_NOT_FOUND:
                return []
            raise
        return [one.client_id for one in found.members if one.member_id != self.member.member_id]

    async def _join(self) -> None:
        id = self.member.member_id
        try:
            joined = await self._groups.join(self._request(id))
        except MemberIdRequired as error:
            joined = await self._groups.join(self._request(error.member_id))
        self.member = MemberIdentity(joined.member_id, None, joined.generation)
        if joined.leader != joined.member_id:
            await self.leave()
            raise HeldElsewhere(f"another agent has joined the group {self._group}: stop one of them")
        # whoever joins later gets nothing to do, and leaves
        assignments = tuple((one.member_id, b"") for one in joined.members)
        await self._groups.sync(
            SyncGroup(
                self._group,
                joined.generation,
                joined.member_id,
                None,
                _KIND,
                _PROTOCOL[0][0],
                assignments,
            )
        )

    def _request(self, member_id: str) -> JoinGroup:
        milliseconds = int(SESSION_SECONDS * 1000)
        return JoinGroup(
            self._group,
            member_id,
            None,
            self._client_id,
            "",
            milliseconds,
            milliseconds,
            _KIND,
            _PROTOCOL,
            True,
        )

    async def keep(self) -> None:
        """Beats until it is cancelled. Raises TreecastError when the group has forgotten this member."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            try:
                await self._groups.heartbeat(self._group, self.member)
            except TreecastError as error:
                if error.fault is Fault.REBALANCE_IN_PROGRESS:
                    await self._join()
                elif error.fault not in (Fault.COORDINATOR_UNAVAILABLE, Fault.COORDINATOR_LOADING):
                    self.member = NOBODY
                    raise

    async def leave(self) -> None:
        """Leaves the group, so that another agent need not wait. What it answers does not matter."""
        member, self.member = self.member, NOBODY
        if member.member_id:
            try:
                await self._groups.leave(self._group, [member])
            except TreecastError:
                return
