"""Daemons as publishers of stacks: notified of trees by their control addresses, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import Unreachable
from treecast.middleware.api.virtual_trees import write_trees
from treecast.middleware.fabric.carriers.labels import NAME as LABELS
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.standing import Standing
from treecast.middleware.routing.network import Network

_log = Log(__name__)

CALL_SECONDS = 10.0


class NotAcknowledged(Exception):
    """Not every publisher uses a version. `missing`: the others and their reasons, each a text."""

    def __init__(self, version: int, missing: tuple[str, ...]) -> None:
        super().__init__(f"version {version} is not used by {'; '.join(missing)}")
        self.missing = missing


class Daemons:
    """`manager.Publishers`. `addresses`: of control, by name. `token`: the cluster's, as daemons on other
    hosts take no change without it. `trust`: a folder with a certificate instead, in a secured cluster."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        seconds: float = CALL_SECONDS,
        token: JoinToken | None = None,
        trust: Path | None = None,
    ) -> None:
        self._addresses = addresses
        self._seconds = seconds
        self._token = token
        self._trust = trust
        self._silent = Standing()  # addresses of publishers that do not answer

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        rules = write_trees(network, trees)
        calls = [
            asyncio.to_thread(self._tell, address, version, rules) for address in self._addresses.values()
        ]
        answers = await asyncio.gather(*calls)
        named = zip(self._addresses, answers, strict=True)
        missing = tuple(f"{name}: {why}" for name, why in named if why)
        if missing:
            raise NotAcknowledged(version, missing)

    async def observed(self) -> dict[str, dict[tuple[str, ...], int]]:
        """Returns, for every publisher that answers, the number of packets that it has sent to each set of
        hosts.
        """
        calls = [asyncio.to_thread(self._ask, address) for address in self._addresses.values()]
        answers = await asyncio.gather(*calls)
        return {name: sets for name, sets in zip(self._addresses, answers, strict=True) if sets is not None}

    def _ask(self, address: str) -> dict[tuple[str, ...], int] | None:
        try:
            with DaemonClient(address, timeout=self._seconds, trust=self._trust) as client:
                found = {tuple(one.hosts): one.packets for one in client.list_receiver_sets()}
        except (TreecastError, Unreachable) as error:
            if self._silent.begins(address, error):
                _log.warning("publisher does not name its receivers", address=address, error=error)
            return None
        if self._silent.ends(address):
            _log.info("publisher names its receivers again", address=address)
        return found

    def _client(self, address: str) -> DaemonClient:
        return DaemonClient(address, timeout=self._seconds, token=self._token, trust=self._trust)

    def _tell(self, address: str, version: int, rules: bytes) -> str:
        """Tells a publisher. Returns why it does not use the trees; empty if it does."""
        try:
            with self._client(address) as client:
                used = client.set_rules(LABELS, version, rules)
        except (TreecastError, Unreachable) as error:
            return str(error)
        return "" if used == version else f"it uses version {used}"
