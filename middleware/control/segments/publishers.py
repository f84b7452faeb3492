"""Daemons as roots of trees: asked for the receivers that they have, and told SIDs, by their control
addresses, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import Unreachable
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from .manager import Group, Told

_log = Log(__name__)

CALL_SECONDS = 10.0


class NotTold(Exception):
    """Not every daemon uses a version. `missing`: who does not, and why, each a text."""

    def __init__(self, version: int, missing: tuple[str, ...]) -> None:
        super().__init__(f"version {version} is not used by {'; '.join(missing)}")
        self.missing = missing


class Daemons:
    """`manager.Publishers`. `addresses`: of control, by name. `token`: the cluster's."""

    def __init__(
        self, addresses: Mapping[str, str], token: JoinToken | None = None, seconds: float = CALL_SECONDS
    ) -> None:
        self._addresses = addresses
        self._token = token
        self._seconds = seconds

    async def announce(self, version: int, told: Told) -> None:
        calls = [
            asyncio.to_thread(self._tell, address, _request(version, told.get(name, {})))
            for name, address in self._addresses.items()
        ]
        answers = await asyncio.gather(*calls)
        named = zip(self._addresses, answers, strict=True)
        missing = tuple(f"{name}: {why}" for name, why in named if why)
        if missing:
            raise NotTold(version, missing)

    async def wanted(self) -> set[Group] | None:
        """The receivers that daemons have now; None where one does not answer, which may have any."""
        calls = [asyncio.to_thread(self._ask, address) for address in self._addresses.values()]
        answers = await asyncio.gather(*calls)
        found: set[Group] = set()
        for name, sets in zip(self._addresses, answers, strict=True):
            if sets is None:
                return None
            found.update([(name, receivers) for receivers in sets])
        return found

    def _ask(self, address: str) -> set[tuple[str, ...]] | None:
        try:
            with DaemonClient(address, timeout=self._seconds) as client:
                return {tuple(sorted(one.hosts)) for one in client.list_receiver_sets()}
        except (TreecastError, Unreachable) as error:
            _log.warning("publisher does not name its receivers", address=address, error=error)
            return None

    def _tell(self, address: str, request: pb.SetSegmentsRequest) -> str:
        """Why it is not used there; empty where it is."""
        try:
            with DaemonClient(address, timeout=self._seconds, token=self._token) as client:
                used = client.set_segments(request)
        except (TreecastError, Unreachable) as error:
            return str(error)
        return "" if used == request.version else f"it uses version {used}"


def _request(version: int, trees: Mapping[tuple[str, ...], bytes]) -> pb.SetSegmentsRequest:
    found = [pb.ReplicationTree(hosts=hosts, sid=sid) for hosts, sid in sorted(trees.items())]
    return pb.SetSegmentsRequest(version=version, trees=found)
