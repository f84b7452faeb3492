"""Whether the holder of a certificate may be the host that it says it is, on a channel of a secured host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .view import ClusterView

if TYPE_CHECKING:
    from treecast.middleware.api.trust import Trust


class Vouching:
    """Compares certificates with the hosts that the coordinator has told."""

    def __init__(self, trust: Trust, view: ClusterView) -> None:
        self._trust = trust
        self._view = view

    def reason(self, host_id: int, tls: object) -> str:
        """Returns why not; empty if it may.

        A host of which the coordinator has not told yet may come, unless its name is that of another one: it
        is looked at again when it is told (`channels.vouch_again`).
        """
        identity = self._trust.holder(tls)
        if identity is None or not identity.is_host:
            return "it gave no certificate of a host of this cluster"
        if not self._trust.accepts(identity):
            return f"host {identity.name} was expelled from this cluster"
        entry = self._view.host(host_id)
        if entry is not None and entry.name != identity.name:
            return f"the certificate is of host {identity.name}, and host {host_id} is {entry.name}"
        named = self._view.hosts.get(identity.name)
        if named is not None and named.host_id != host_id:
            return (
                f"the certificate is of host {identity.name}, whose number is {named.host_id}, not {host_id}"
            )
        return ""
