"""Daemons as roots of trees: asked for the receivers that they have, and told SIDs, by their control
addresses, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import Unreachable
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.fabric.carriers.srv6 import NAME as SRV6
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.standing import Standing

from .manager import Group, Told

_log = Log(__name__)

CALL_SECONDS = 10.0


class NotTold(Exception):
    """Not every daemon uses a version. `missing`: who does not, and why, each a text."""

    def __init__(self, version: int, missing: tuple[str, ...]) -> None:
        super().__init__(f"version {version} is not used by {'; '.join(missing)}")
        self.missing = missing


def token_of(text: str) -> JoinToken | None:
    """Returns the token of a text or of `@FILE`; None for a missing file: the first daemon, which writes it,
    may be reached only by the routers.
    """
    if text.startswith("@"):
        path = Path(text[1:])
        return JoinToken.parse(path.read_text("utf-8")) if path.exists() else None
    return JoinToken.parse(text) if text else None


class Daemons:
    """`manager.Publishers`. `addresses`: of control, by name. `token`: the cluster's, as in `token_of`.
    `trust`: a folder with a certificate instead, in a secured cluster."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        token: str = "",
        seconds: float = CALL_SECONDS,
        trust: Path | None = None,
    ) -> None:
        self._trust = trust
        self._addresses = addresses
        self._token = token
        self._seconds = seconds
        self._silent = Standing()  # addresses of daemons that do not answer
        self._known: dict[str, dict[tuple[str, ...], int]] = {}  # by daemon, when it answered last

    async def announce(self, version: int, told: Told) -> None:
        token = token_of(self._token)
        calls = [
            asyncio.to_thread(self._tell, address, version, _rules(told.get(name, {})), token)
            for name, address in self._addresses.items()
        ]
        answers = await asyncio.gather(*calls)
        named = zip(self._addresses, answers, strict=True)
        missing = tuple(f"{name}: {why}" for name, why in named if why)
        if missing:
            raise NotTold(version, missing)

    async def wanted(self) -> dict[Group, int] | None:
        """Returns the receivers that daemons have now, with the bytes sent to them so far; of a daemon that
        does not answer, what it said last.

        None if one has never answered: it may have any.
        """
        calls = [asyncio.to_thread(self._ask, address) for address in self._addresses.values()]
        answers = await asyncio.gather(*calls)
        named = zip(self._addresses, answers, strict=True)
        self._known.update({name: sets for name, sets in named if sets is not None})
        if self._known.keys() != self._addresses.keys():
            return None
        known = self._known.items()
        return {(name, receivers): sent for name, sets in known for receivers, sent in sets.items()}

    def _ask(self, address: str) -> dict[tuple[str, ...], int] | None:
        try:
            with DaemonClient(address, timeout=self._seconds, trust=self._trust) as client:
                found = {tuple(sorted(one.hosts)): one.bytes for one in client.list_receiver_sets()}
        except (TreecastError, Unreachable) as error:
            if self._silent.begins(address, error):
                _log.warning("publisher does not name its receivers", address=address, error=error)
            return None
        if self._silent.ends(address):
            _log.info("publisher names its receivers again", address=address)
        return found

    def _tell(self, address: str, version: int, rules: bytes, token: JoinToken | None) -> str:
        """Why it is not used there; empty where it is."""
        try:
            with DaemonClient(address, timeout=self._seconds, token=token, trust=self._trust) as client:
                used = client.set_rules(SRV6, version, rules)
        except (TreecastError, Unreachable) as error:
            return str(error)
        return "" if used == version else f"it uses version {used}"


def _rules(trees: Mapping[tuple[str, ...], bytes]) -> bytes:
    found = [pb.ReplicationTree(hosts=hosts, sid=sid) for hosts, sid in sorted(trees.items())]
    return pb.ReplicationTrees(trees=found).SerializeToString()
