"""`LinkHomes`: where shared subscriptions are at home, as the view knows and the coordinator says."""

from __future__ import annotations

from treecast.middleware.api.entries import Presence
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.link import Link


class LinkHomes:
    """Implements `shares.ShareHomes`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def home(self, id: str, *, ask: bool) -> int:
        """A home that nobody has, or whose host is away for long, is given to who asks."""
        known = self._link.view.share_home(id)
        if known is not None and not ask and self._present(known.host_id):
            return known.host_id
        try:
            found = await self._link.client.share_home(self._link.session, id)
        except TreecastError as error:
            if known is not None and error.fault is Fault.COORDINATOR_UNAVAILABLE:
                return known.host_id
            if error.fault is Fault.UNKNOWN_MEMBER:  # this host is about to attach again
                raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, error.detail) from error
            raise
        return found.host_id

    def _present(self, host_id: int) -> bool:
        host = self._link.view.host(host_id)
        return host is not None and host.presence is Presence.ATTACHED
