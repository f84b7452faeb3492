"""The control address of an agent: what a network controller asks and tells of the trees of its streams.

These are two calls of a daemon's service (`proto/treecast/v1/daemon.proto`); all others are refused.
Everybody who reaches the address may ask for the sets of receivers. Rules are set by calls that the cluster's
join token has signed, and their answers are sealed by it. In a secured cluster, which has no such token, the
address is a Unix socket, for the agent's own user.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc.aio

from treecast.middleware.api.admission import Admission, Refused
from treecast.middleware.api.call_auth import AUTH_KEY
from treecast.middleware.api.calls import Calls
from treecast.middleware.api.daemon_client import SERVICE
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import MAX_CALLS, Method, methods, server_options
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.fabric.carriers.registry import Carriers
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.ruled_carriers import receiver_sets, set_rules

_STALL_SECONDS: Final = 30.0  # the service has no streams
_CLOSE_SECONDS: Final = 1.0
_UNIX: Final = "unix:"
_ASKS: Final = "ListReceiverSets"
_ASKS_PATH: Final = next(method.path for method in methods(SERVICE) if method.name == _ASKS)


class ControlServer:
    """The server, from `start` to `close`."""

    def __init__(
        self, address: str, token: JoinToken | None, carriers: Carriers, cluster_id: str = ""
    ) -> None:
        """`address`: HOST:PORT or unix:PATH. `token` None: of a secured cluster, `cluster_id`, where the
        address is a Unix socket. `carriers`: of this host's fabric.
        """
        self.address = address
        self._server = grpc.aio.server(
            options=server_options(0, called_by_hosts=False), maximum_concurrent_rpcs=MAX_CALLS
        )
        self._calls = _RuleCalls(carriers)
        calls = Calls(SERVICE, self._serving, _Admission(token, cluster_id), time.monotonic, _STALL_SECONDS)
        self._server.add_generic_rpc_handlers((calls.handler,))

    def _serving(self, method: Method) -> Callable[[Any], Any]:
        call: Callable[[Any], Any] | None = getattr(self._calls, method.attribute, None)
        if call is None:
            raise TreecastError(
                Fault.NOT_SUPPORTED, "this is an agent's address: ask `treecast agent status`"
            )
        return call

    async def start(self) -> None:
        """Starts to listen. Raises OSError."""
        try:
            port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise OSError(f"agent.control {self.address}: cannot listen there: {error}") from error
        if not self.address.startswith("unix:"):
            self.address = f"{self.address.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(_CLOSE_SECONDS)


class _RuleCalls:
    """The calls that an agent answers."""

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers

    async def list_receiver_sets(self, request: pb.ListReceiverSetsRequest) -> pb.ListReceiverSetsResponse:
        return pb.ListReceiverSetsResponse(sets=receiver_sets(self._carriers))

    async def set_rules(self, request: pb.SetRulesRequest) -> pb.SetRulesResponse:
        return pb.SetRulesResponse(version=set_rules(self._carriers, request))


class _Admission:
    """Implements `api.calls.Admits`: signatures are needed for all but asking; without a token, to be the
    agent's own user."""

    def __init__(self, token: JoinToken | None, cluster_id: str) -> None:
        cluster = token.cluster_id if token is not None else cluster_id
        self._signed = Admission(cluster, token, secrets.token_bytes(16))
        self._secured = token is None

    def trusts(self, metadata: Mapping[str, str], peer: str) -> bool:
        return self._signed.trusts(metadata, peer)

    def admit(self, metadata: Mapping[str, str], method: str, body: bytes, now: float, peer: str) -> None:
        if self._secured:
            if not peer.startswith(_UNIX):
                raise Refused(
                    Fault.POLICY_VIOLATION, "this cluster is secured: call the Unix socket", "unsigned"
                )
        elif AUTH_KEY in metadata:
            self._signed.admit(metadata, method, body, now)
        elif method != _ASKS_PATH:
            raise Refused(
                Fault.POLICY_VIOLATION, "a change needs the join token: give --token @FILE", "unsigned"
            )

    def seal(self, metadata: Mapping[str, str], method: str, number: int, body: bytes) -> bytes:
        return self._signed.seal(metadata, method, number, body)

    def proof_of(
        self, metadata: Mapping[str, str], method: str, fault: str, detail: str
    ) -> tuple[tuple[str, str], ...]:
        return self._signed.proof_of(metadata, method, fault, detail)
