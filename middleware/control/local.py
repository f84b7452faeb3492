"""`LocalCoordinator`: calls of the daemon in which the coordinator is embedded; nothing crosses a network."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import TypeVar

from google.protobuf.message import Message

from treecast.middleware.api.coordinator_client import SERVICE, CoordinatorCalls
from treecast.middleware.api.rpc import methods

from .server import OpenCoordinator

R = TypeVar("R", bound=Message)


class LocalCoordinator(CoordinatorCalls):
    """The same calls as a client's, made on the service itself. Whoever can make them needs no token."""

    def __init__(self, opened: OpenCoordinator, rng: random.Random | None = None) -> None:
        super().__init__("this daemon", opened.coordinator.cluster_id, rng or random.Random())
        self._service = opened.service
        self._names = {method.name: method.attribute for method in methods(SERVICE)}

    async def _call(self, name: str, request: Message, response: type[R]) -> R:
        answer = await getattr(self._service, self._names[name])(request)
        assert isinstance(answer, response)
        return answer

    def _stream(self, name: str, request: Message) -> AsyncGenerator[bytes, None]:
        messages: AsyncGenerator[bytes, None] = getattr(self._service, self._names[name])(request)
        return messages

    async def close(self) -> None:
        """Nothing was opened."""
