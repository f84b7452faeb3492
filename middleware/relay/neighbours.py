"""`Neighbours`: the two paths from this host to the others, channels and fabric, and the hosts' addresses.

Both are created before they are started, because handlers of other hosts' calls must be registered with
`methods` first. Addresses come from the coordinator through the view.
"""

from __future__ import annotations

import asyncio
import random
import socket

from msgspec import Struct

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import HostEntry, Presence
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.fabric.channel import Channels, ChannelSettings, Methods, channel_key
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.passes import Passes
from treecast.middleware.wire.segment import KeyRing

from .view import ClusterView

SEGMENTS = "fabric segments 1"  # label from which the key of segments is derived

_log = Log(__name__)


class Port(Struct):
    """The fabric's port number, TCP and UDP, reserved before use. `address`: to which both are bound."""

    address: Address
    stream: socket.socket
    datagrams: socket.socket

    def close(self) -> None:
        self.stream.close()
        self.datagrams.close()


class Endpoint(Struct):
    """This host's end of both paths to the others, with their settings."""

    port: Port
    token: JoinToken | None  # None: nothing is authenticated
    channel: ChannelSettings
    fabric: FabricSettings


class Neighbours:
    """The paths to the other hosts.

    Start with `start_fabric`, then `start_channels`; close with `close_channels`, then `close_fabric`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        host_id: int,
        run: int,
        cluster_id: str,
        view: ClusterView,
        counters: Counters,
        passes: Passes | None = None,
    ) -> None:
        """`run`: this host's run number, which increases with each run; the epoch of its streams. `passes`:
        the host's, in which the channels are written."""
        self._endpoint = endpoint
        self._host_id = host_id
        self._view = view
        self._resolving: set[asyncio.Task[None]] = set()
        self._sends = False
        token, rng = endpoint.token, random.Random()
        keys = KeyRing({token.key_id: token.derive(SEGMENTS)}, token.key_id) if token else KeyRing({}, None)
        self.methods = Methods()
        self.channels = Channels(
            host_id,
            run,
            cluster_id,
            channel_key(token),
            endpoint.channel,
            counters.channel,
            rng,
            self.methods.handle,
            passes=passes,
        )
        self.methods.use(self.channels)
        self.channels.on_refused = self._note_refused
        self._isolated = False  # whether isolation has been logged
        self.fabric = Fabric(host_id, endpoint.fabric, keys, counters.fabric, rng)

    async def start_fabric(self) -> None:
        """Starts receiving segments. Raises OSError if the port has been taken."""
        address = self._endpoint.port.address
        self._endpoint.port.datagrams.close()
        await self.fabric.start((address.host, address.port))
        self._sends = True
        self._view.hosts.subscribe(self._moved)
        for host in self._view.hosts:
            self._moved(None, host)

    async def start_channels(self) -> None:
        """Starts answering other hosts."""
        await self.channels.start(self._endpoint.port.address, self._endpoint.port.stream)

    async def close_channels(self) -> None:
        await self.channels.close()

    async def close_fabric(self) -> None:
        for task in list(self._resolving):
            task.cancel()
        await asyncio.gather(*self._resolving, return_exceptions=True)
        if self._sends:
            self.fabric.close()

    # --- whether other hosts accept this one

    def isolation(self) -> str:
        """Returns why all other attached hosts refuse this one; empty if one does not or there is none."""
        peers = {peer.host_id: peer for peer in self.channels.peers()}
        others = [
            (host.name, peers.get(host.host_id))
            for host in self._view.hosts
            if host.host_id != self._host_id and host.presence is Presence.ATTACHED
        ]
        said = [
            f"host {name}: {peer.last_error}" for name, peer in others if peer is not None and peer.refused
        ]
        if not said or len(said) < len(others):
            return ""
        return f"no other host accepts this one ({'; '.join(said)})"

    def _note_refused(self, host: int) -> None:
        if not self._isolated and (isolation := self.isolation()):
            self._isolated = True
            _log.error("host is isolated: other hosts do not see what is written here", reason=isolation)

    def accepted(self, host: int) -> None:
        """Notes a connection to `host`."""
        if self._isolated:
            self._isolated = False
            _log.info("host is accepted again", by=host)

    # --- addresses

    def _moved(self, before: HostEntry | None, after: HostEntry | None) -> None:
        """Applies a change of a host's address.

        The last known address is used even if the host is not attached: the coordinator may be away as well.
        """
        if after is None:
            if before is not None and before.host_id != self._host_id:
                self.channels.set_host(before.host_id, None)
                self.fabric.set_host(before.host_id, None)
                self.fabric.carriers.set_name(before.host_id, "")
                self.fabric.carriers.set_zone(before.host_id, "")
                self.fabric.paths.forget(before.host_id)
            return
        self.fabric.carriers.set_name(after.host_id, after.name)
        self.fabric.carriers.set_zone(after.host_id, after.zone)
        if after.host_id != self._host_id:
            self.fabric.paths.tell(after.host_id, after.mtu)
        if after.host_id != self._host_id and (before is None or before.address != after.address):
            self._set(after.host_id, after.address)

    def _set(self, host_id: int, text: str) -> None:
        try:
            address = Address.parse(text)
        except ValueError as error:
            _log.warning("address of a host is invalid", host=host_id, address=text, error=error)
            return
        self.channels.set_host(host_id, address)
        task = asyncio.get_running_loop().create_task(self._resolve(host_id, address))
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _resolve(self, host_id: int, address: Address) -> None:
        """Sets the host's address for segments: numeric, in the address family of this host."""
        family = socket.AF_INET6 if ":" in self._endpoint.port.address.host else socket.AF_INET
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, family=family, type=socket.SOCK_DGRAM
            )
            self.fabric.set_host(host_id, (str(found[0][4][0]), address.port))
        except (OSError, ValueError) as error:
            _log.warning("address of a host cannot be resolved", host=host_id, address=address, error=error)


class FabricLife:
    """A `cluster.Life` of the fabric; started before its users."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    async def start(self) -> None:
        await self._neighbours.start_fabric()

    async def close(self) -> None:
        await self._neighbours.close_fabric()


class ChannelLife:
    """A `cluster.Life` of the channels; started last, when all that answers other hosts is started."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    async def start(self) -> None:
        await self._neighbours.start_channels()

    async def close(self) -> None:
        await self._neighbours.close_channels()
