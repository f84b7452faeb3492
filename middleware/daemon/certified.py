"""Admission to the coordinator of a secured cluster: hosts, by their certificates, each under its own name.

Calls are not signed: they come through the door (`daemon/door.py`), whose TLS protects them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from treecast.middleware.api.admission import Admission, Refused
from treecast.middleware.api.certificates import HOST, Identity
from treecast.middleware.api.coordinator_client import SERVICE
from treecast.middleware.api.rpc import methods
from treecast.middleware.model.errors import Fault

from .control_access import NEEDS_CERTIFICATE

_NAMED: Final = frozenset(
    {"AttachRequest", "HandInRequest"}
)  # these say the caller's name, others its session
_REQUESTS: Final[Mapping[str, type[Message]]] = {one.path: one.request for one in methods(SERVICE)}


class CertifiedAdmission:
    """Implements `api.calls.Admits` for the coordinator."""

    def __init__(
        self,
        cluster_id: str,
        caller: Callable[[str], Identity | None],
        name_of: Callable[[int], str],
    ) -> None:
        """`caller`: who a peer has proven to be. `name_of`: the name of a host by its id; empty: unknown."""
        self._checked = Admission(cluster_id, None, secrets.token_bytes(16))
        self._caller = caller
        self._name_of = name_of

    def trusts(self, metadata: Mapping[str, str], peer: str) -> bool:
        """Whether a call comes from a host, before its request is read."""
        return self._caller(peer) is not None

    def admit(self, metadata: Mapping[str, str], method: str, body: bytes, now: float, peer: str) -> None:
        """Raises Refused."""
        self._checked.admit(metadata, method, body, now)
        identity = self._caller(peer)
        if identity is None or identity.role != HOST:
            raise Refused(Fault.POLICY_VIOLATION, NEEDS_CERTIFICATE, "unsigned")
        if (name := self._name_in(method, body)) not in ("", identity.name):
            raise Refused(
                Fault.POLICY_VIOLATION,
                f"the certificate is of host {identity.name}, and the call is of {name}: look at --name",
                "name",
            )

    def _name_in(self, method: str, body: bytes) -> str:
        """Returns the host in whose name a call is made; empty if it names none that is known."""
        kind = _REQUESTS.get(method)
        try:
            request: Any = kind.FromString(body) if kind is not None else None  # of a generated type
        except DecodeError:
            return ""  # refused as such when it is read
        if request is None:
            return ""
        if request.DESCRIPTOR.name in _NAMED:
            return str(request.name)
        if "session" not in request.DESCRIPTOR.fields_by_name:
            return ""
        return self._name_of(int(request.session.host_id))

    def seal(self, metadata: Mapping[str, str], method: str, number: int, body: bytes) -> bytes:
        return body

    def proof_of(
        self, metadata: Mapping[str, str], method: str, fault: str, detail: str
    ) -> tuple[tuple[str, str], ...]:
        return ()
