"""STARE on a host alone: no network, and the replica controller beside the middleware."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from treecast.middleware.control.replica_service import ReplicaService
from treecast.middleware.control.replicas.settings import ReplicaSettings
from treecast.middleware.control.replicas.vnf_ids import VnfIds
from treecast.middleware.fabric.stare.edge import StareEdge
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.stare import FIRST_STATE, LAST_STATE

_ALONE: Final = 0


class Stare(Protocol):
    """STARE's part of a daemon. The face uses `edge`."""

    edge: StareEdge

    def start(self) -> None: ...

    async def close(self) -> None: ...


class AloneStare:
    """STARE on a host alone: nothing leaves the host, and ids last as long as the process."""

    def __init__(self, counters: Counters) -> None:
        self._states: dict[tuple[str, ...], int] = {}
        self.edge = StareEdge(StareSettings(), random.Random(), counters.stare, self._state_of)
        self.service = ReplicaService(
            ReplicaSettings(),
            random.Random(),
            counters.replicas,
            VnfIds(),
            send=lambda host, data: self.edge.signal(data),
            want=self.edge.want,
            unwant=self.edge.unwant,
            store=_forget,
        )

    def start(self) -> None:
        self.edge.start()
        self.service.start()
        self.edge.send = lambda data: self.service.signal(_ALONE, 0, data)
        self.edge.copy = self.service.copy

    async def _state_of(self, levels: Sequence[str]) -> int:
        state = self._states.setdefault(tuple(levels), FIRST_STATE + len(self._states))
        if state > LAST_STATE:
            raise TreecastError(Fault.POLICY_VIOLATION, "all state ids are allotted")
        return state

    async def close(self) -> None:
        self.service.close()
        self.edge.close()


async def _forget(items: Mapping[bytes, bytes | None]) -> None:
    """Stores nothing: no other host takes over from a host alone."""
