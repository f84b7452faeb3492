"""Permissions at the control address.

Everybody who reaches it may read. Changes are for processes of this host that belong to the daemon's user, to
its group or to root, by a Unix socket or by TCP; and for calls signed by a key: the cluster's (`join-token`),
or, for a host alone, its own (`control-token`). A signed call is always checked, and so is its answer by the
caller (`api.call_auth`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treecast.middleware.api.admission import Admission, Refused
from treecast.middleware.api.call_auth import AUTH_KEY
from treecast.middleware.api.daemon_client import SERVICE
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.api.rpc import methods
from treecast.middleware.model.errors import Fault

from .peers import is_own
from .tokens import CONTROL_FILE, keep_token, kept_token

if TYPE_CHECKING:
    from treecast.middleware.api.certificates import Identity

NEEDS_CERTIFICATE = (
    "this cluster is secured: call by a certificate of it, from a folder `trust` (TREECAST_TRUST=DIR)"
)
READS = frozenset(
    {
        *(
            "Status",
            "Fabric",
            "ListStreams",
            "ListReceiverSets",
            "ListWishes",
            "ExportView",
            "ListEvents",
            "Explain",
        ),
        *("ListTopics", "DescribeTopic", "ListPartitions", "ListGroups", "DescribeGroup"),
    }
)
CHANGES = frozenset(
    {
        *("CreateTopic", "DeleteTopic", "AlterTopic", "CreatePartitions"),
        *("PromotePartition", "RebuildPartition", "SetRules"),
        *("DeleteGroup", "ResetGroup"),
    }
)
_PATHS_OF_READS = frozenset(method.path for method in methods(SERVICE) if method.name in READS)


class ControlAdmission:
    """Implements `api.admission.Admission` for the daemon's own service."""

    def __init__(
        self,
        cluster_id: str,
        token: JoinToken | None,
        port: Callable[[], int],
        own: Callable[[str, int], bool] = is_own,
        certified: Callable[[str], Identity | None] | None = None,
    ) -> None:
        """`port`: the daemon's listening port. `own`: whether a peer of that port is a process of this host.
        If `token` is None, nobody else may make changes. `certified`, on a secured host: who a peer has
        proven to be by a certificate. Then nobody else may call by TCP: all such calls come from the door.
        """
        self._signed = Admission(cluster_id, token, secrets.token_bytes(16))
        self._token = token
        self._port = port
        self._own = own
        self._certified = certified

    def trusts(self, metadata: Mapping[str, str], peer: str) -> bool:
        """Whether a call comes over the Unix socket, or seems to come from a holder of the key."""
        if self._certified is not None and self._certified(peer) is not None:
            return True
        return peer.startswith("unix:") or self._signed.trusts(metadata, peer)

    def admit(self, metadata: Mapping[str, str], method: str, body: bytes, now: float, peer: str) -> None:
        """Raises Refused. `now`: seconds of a steady clock; `peer`: the caller, as gRPC names it."""
        if self._certified is not None and not peer.startswith("unix:"):
            if self._certified(peer) is None:
                raise Refused(Fault.POLICY_VIOLATION, NEEDS_CERTIFICATE, "unsigned")
            return
        if AUTH_KEY in metadata:
            if self._token is None:
                raise Refused(Fault.POLICY_VIOLATION, "this daemon has no key: omit the token", "key")
            self._signed.admit(metadata, method, body, now)
        elif method not in _PATHS_OF_READS and not self._own(peer, self._port()):
            raise Refused(
                Fault.POLICY_VIOLATION,
                f"a change from {peer.partition(':')[2] or peer} needs the daemon's token: give --token @FILE"
                " (or TREECAST_TOKEN), with a copy of `join-token` in its data directory, or of a host alone"
                " `control-token`; on its own host its user, group and root need none",
                "unsigned",
            )

    def seal(self, metadata: Mapping[str, str], method: str, number: int, body: bytes) -> bytes:
        return self._signed.seal(metadata, method, number, body)

    def proof_of(
        self, metadata: Mapping[str, str], method: str, fault: str, detail: str
    ) -> tuple[tuple[str, str], ...]:
        return self._signed.proof_of(metadata, method, fault, detail)


def control_token(data: Path, cluster_id: str) -> JoinToken:
    """Returns the key of a host alone from its data directory, creating it if necessary. Raises
    StartError.
    """
    kept = kept_token(data, CONTROL_FILE)
    if kept is not None and kept.cluster_id == cluster_id:
        return kept
    token = new_token(cluster_id)
    keep_token(data, token, CONTROL_FILE)
    return token
