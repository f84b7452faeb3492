"""`Neighbours`: the two paths from this host to the others, channels and fabric, and the hosts' addresses.

Both are created before they are started, because handlers of other hosts' calls must be registered with
`methods` first. Addresses come from the coordinator through the view.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import HostEntry, Presence
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.fabric.channel import (
    Channels,
    ChannelSettings,
    ChannelTls,
    Method,
    Methods,
    Nothing,
    channel_key,
    listen_on_one_number,
    vouch_again,
)
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.passes import Passes
from treecast.middleware.model.policies import Protection
from treecast.middleware.wire.segment_keys import KeyRing

from .own_place import OwnPlace
from .segment_keys import SEGMENTS, SegmentKeys, ring_of
from .view import ClusterView
from .vouching import Vouching

if TYPE_CHECKING:
    from treecast.middleware.api.trust import Trust
    from treecast.middleware.api.trust_calls import Keys

_log = Log(__name__)


class Port(Struct):
    """The fabric's port number, TCP and UDP, reserved before use. `address`: to which both are bound."""

    address: Address
    stream: socket.socket
    datagrams: socket.socket

    def close(self) -> None:
        self.stream.close()
        self.datagrams.close()


class Moved(Struct, frozen=True, array_like=True):
    """Tells that the calling host's fabric is at another address now, HOST:PORT, in this run."""

    address: str


MOVED: Final = Method(20, Moved, Nothing)


class Endpoint(Struct):
    """This host's end of both paths to the others, with their settings. `announced`: where other hosts reach
    it, if that is not the port's address."""

    port: Port
    token: JoinToken | None  # None: nothing is authenticated
    channel: ChannelSettings
    fabric: FabricSettings
    announced: Address | None = None
    trust: Trust | None = None  # of a secured host; it has the keys, and `token` is not used
    protection: Protection = Protection.AUTO


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
        keys, trust = _key_ring(endpoint), endpoint.trust
        self.methods = Methods()
        self.channels = Channels(
            host_id,
            run,
            cluster_id,
            channel_key(token) if trust is None else None,  # TLS protects those of a secured host
            endpoint.channel,
            counters.channel,
            rng,
            self.methods.handle,
            passes=passes,
        )
        self.methods.use(self.channels)
        self._keys: SegmentKeys | None = None
        if trust is not None:
            vouching = Vouching(trust, view)
            self.channels.tls = ChannelTls(trust.server, trust.client, vouching.reason)
            if keys.current is not None:  # else segments are not protected, and no change makes them so
                self._keys = SegmentKeys(keys, trust, asyncio.get_running_loop().call_later)
            trust.on_keys.append(self._trust_changed)
        self.channels.on_refused = self._note_refused
        self._isolated = False  # whether isolation has been logged
        self._told: dict[int, int] = {}  # hosts that told a move themselves -> their run
        self.address = endpoint.port.address  # where this host listens
        self.announced = endpoint.announced or self.address  # where other hosts reach it
        self._has_moved = False
        self._follows = True  # `announced` is this machine's own address, and no translated one
        self.on_moved: list[Callable[[Neighbours], None]] = []
        self.place = OwnPlace(self._move)
        self.methods.register(MOVED, self._other_moved)
        self.fabric = Fabric(host_id, endpoint.fabric, keys, counters.fabric, rng)

    async def start_fabric(self) -> None:
        """Starts receiving segments. Raises OSError if the port has been taken."""
        address = self._endpoint.port.address
        # Held up to now, so that nobody else took the number; the fabric binds a socket of its own.
        self._endpoint.port.datagrams.close()
        await self.fabric.start((address.host, address.port))
        self._sends = True
        fabric = self.fabric
        elsewhere = _is_wildcard(address.host) and not fabric.interface.index
        own = {self.announced.host, self._endpoint.fabric.advertised}
        self._follows = fabric.named in own
        self.place.at("" if elsewhere else fabric.named, fabric.interface)
        self._view.hosts.subscribe(self._moved)
        for host in self._view.hosts:
            self._moved(None, host)

    async def start_channels(self) -> None:
        """Starts answering other hosts."""
        await self.channels.start(self._endpoint.port.address, self._endpoint.port.stream)

    def _trust_changed(self, keys: Keys) -> None:
        """Ends the connections of hosts that were expelled."""
        vouch_again(self.channels)

    async def close_channels(self) -> None:
        if self._endpoint.trust is not None and self._trust_changed in self._endpoint.trust.on_keys:
            self._endpoint.trust.on_keys.remove(self._trust_changed)
        await self.channels.close()

    async def close_fabric(self) -> None:
        for task in list(self._resolving):
            task.cancel()
        await asyncio.gather(*self._resolving, return_exceptions=True)
        if self._keys is not None:
            self._keys.end()
        if self._sends:
            self.fabric.close()

    def trouble(self, host: int) -> str:
        """Returns why a host is not connected, and what to look at; empty if it is, or nothing is known."""
        peer = next((one for one in self.channels.peers() if one.host_id == host), None)
        if peer is None or peer.connected or not peer.last_error:
            return ""
        return self.place.trouble if self.place.lost else f"{peer.last_error}; {peer.advice}"

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

    def accepted(self, host: int, incarnation: int) -> None:
        """Notes a connection to this run of `host`."""
        if self._told.get(host, incarnation) != incarnation:  # by a run that has ended
            del self._told[host]
            entry = self._view.host(host)
            if entry is not None:
                self._set(host, entry.address)
        if self._has_moved:
            self.methods.tell(host, MOVED, Moved(str(self.announced)))
        if self._isolated:
            self._isolated = False
            _log.info("host is accepted again", by=host)

    # --- this host's address

    async def _move(self, host: str) -> None:
        """Uses another address of this machine. Raises OSError if that is not available."""
        gone, port = self.fabric.named, self.address.port
        if _is_wildcard(self.address.host):
            self.fabric.rebind(self.address.host, host)
            self.channels.leave_address(gone)
        elif host == self.address.host:  # its interface is another one
            self.fabric.rebind(host)
        else:
            stream, datagrams = listen_on_one_number(Address(host, port))
            # It has shown that the number is free for UDP as well; the fabric binds its own.
            datagrams.close()
            try:
                self.fabric.rebind(host)
            except OSError:
                stream.close()
                raise
            self.address = Address(host, port)
            await self.channels.move(stream, gone)
        if gone != host:
            self._announce(host)

    def _announce(self, host: str) -> None:
        """Tells other hosts the new address, unless they use a translated one."""
        if self._follows:
            self.announced = Address(host, self.announced.port)
            self._has_moved = True
            for peer in self.channels.peers():
                self.methods.tell(peer.host_id, MOVED, Moved(str(self.announced)))
        for tell in self.on_moved:
            tell(self)

    # --- addresses of other hosts

    def _other_moved(self, host: int, notice: Moved, body: memoryview) -> tuple[Nothing, Buffer]:
        """Takes a host's own word, which comes sooner than the coordinator's and also without it."""
        incarnation = {peer.host_id: peer.incarnation for peer in self.channels.peers()}.get(host, 0)
        self._told[host] = incarnation
        _log.info("host has another address", host=host, address=notice.address)
        self._set(host, notice.address)
        return Nothing(), b""

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
        if before is None and self.channels.tls is not None:
            vouch_again(self.channels)  # it may have come before it was told
        self.fabric.carriers.set_name(after.host_id, after.name)
        self.fabric.carriers.set_zone(after.host_id, after.zone)
        if after.host_id != self._host_id:
            self.fabric.paths.tell(after.host_id, after.mtu)
        if after.host_id != self._host_id and (before is None or before.address != after.address):
            if after.host_id in self._told and self.channels.is_up(after.host_id):
                return  # it tells each move itself, and what the coordinator tells may be an earlier one
            self._told.pop(after.host_id, None)
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


def _key_ring(endpoint: Endpoint) -> KeyRing:
    """Returns the keys of segments: those of the trust, else that of the token; without either none."""
    token, trust, wanted = endpoint.token, endpoint.trust, endpoint.protection
    if wanted is Protection.OFF:
        return KeyRing({}, None)
    if trust is not None:
        keys, current = ring_of(trust), trust.keys.current
    elif token is not None:
        keys, current = {token.key_id: token.derive(SEGMENTS)}, token.key_id
    else:
        return KeyRing({}, None)
    if wanted is Protection.SEALED or (wanted is Protection.AUTO and trust is not None):
        from treecast.middleware.fabric.sealing import sealing  # here: it loads `cryptography`

        return KeyRing(keys, current, sealing())
    return KeyRing(keys, current)


def _is_wildcard(host: str) -> bool:
    return ipaddress.ip_address(host).is_unspecified


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
