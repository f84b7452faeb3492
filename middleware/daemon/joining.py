"""Makes a daemon a host of a cluster. It opens, in this order and before the broker:

  data directory    checks that it belongs to this host, and that no other daemon uses it
  coordinator       embedded if the host joins no other; in the same directory
  port              of the fabric; other hosts are told the chosen number
  attachment        gets the host's id, by its name; then the directory is the host's in this cluster

A host that was attached before starts without the coordinator, from its stored view; a new one waits for it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.coordinator_calls import CoordinatorCalls, ViewWanted
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.entries import Position, TopicEntry
from treecast.middleware.api.join_token import JoinToken, new_token
from treecast.middleware.api.lasting import BackOff
from treecast.middleware.api.trust_files import is_secured
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker import DataDirectory, JoinedCluster, LocalParts, Membership
from treecast.middleware.control.server import LocalCoordinator, OpenCoordinator, ServerSettings
from treecast.middleware.fabric.carriers.relay import NAME as RELAY
from treecast.middleware.fabric.channel import ChannelSettings, listen_on_one_number
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.edge import named_by, packet_bytes
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import interface_of
from treecast.middleware.model.carriers import carriers_of
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, new_cluster_id
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.attaching import attach_request, count_by_clock, take_run
from treecast.middleware.relay.cluster import RelayCluster
from treecast.middleware.relay.composition import join
from treecast.middleware.relay.coordinator_link import CoordinatorLink
from treecast.middleware.relay.neighbours import Endpoint, Port
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.relay.view_store import hand_in_stored, stored_position

from .alone import become_alone, own_topics
from .listeners import StartError, cannot_listen
from .settings import STORE, Settings
from .tokens import FILE, given_token, is_one_time, keep_token, kept_token
from .users_file import users_path

if TYPE_CHECKING:
    from treecast.middleware.control.cluster_state import ClusterState

    from .securing import Secured
    from .stare import JoinedStare

_HELD_IN_ZONES = 256 * 1024  # bytes of each received stream that a host keeps with the carrier relay
_KNOWN_SECONDS = 2.0  # time for which a host with a stored view waits for the coordinator

_log = Log(__name__)


# Opens the control address of the coordinator's cluster: (cluster id, token, coordinator).
OpenControl = Callable[[str, JoinToken, OpenCoordinator], Awaitable[None]]


class Joining:
    """The joining of one daemon, from `open` to `close`. The broker and its cluster use its parts."""

    def __init__(
        self, settings: Settings, counters: Counters, fabric: Address, open_control: OpenControl
    ) -> None:
        self._open_control = open_control
        self._settings = settings
        self._counters = counters
        self._wanted = fabric
        self._data = Path(settings.data)
        self._attachment: Attachment | None = None
        self._client: CoordinatorCalls | None = None
        self.coordinator: OpenCoordinator | None = None  # if it is embedded
        self._port: Port | None = None
        self._advertised = ""  # the announced address as a number; empty if it cannot be looked up
        self.secured: Secured | None = None  # of a host of a secured cluster
        self.directory_is_old = False  # another one than the cluster knew, or an older state; in this run
        self.directory: DataDirectory
        self.token: JoinToken
        self.host: Host
        self.link: CoordinatorLink
        self.relay: RelayCluster  # set once the broker exists

    async def open(self) -> None:
        """Opens the parts. Raises TreecastError or StartError; `close` then closes what was opened."""
        fresh = new_cluster_id(secrets.randbits(128))
        self.directory = DataDirectory.open(self._data, None, fresh)
        self._check_name()
        await self._secure()
        self._listen()
        if target := self._target():
            self._reach(target)
        else:
            self._embed()
        assert self._client is not None
        if self.coordinator is not None and self._known is not None:
            await self._hear_others(self.coordinator)
        self._advertised = await _numeric(self.announced.host, self._wanted.host)
        membership = self._membership(target)
        if self._known is not None:
            count_by_clock(self.directory)
        interface = interface_of(named_by(self.address.host, self._advertised))
        mtu = packet_bytes(self._settings.mtu, interface)
        request = attach_request(
            self.directory, membership, self.announced, zone=self._settings.zone, mtu=mtu
        )
        self._attachment = Attachment(self._client, request, self._attached, self.directory.move_stamp)
        position = stored_position(self.directory.tables) if self._known is not None else Position()
        self._client.position = lambda: position
        await self._attach(self._attachment, target)
        await self._check_topics()
        if self.secured is None:
            keep_token(self._data, self.token)
        self._begin(membership)
        self.link = CoordinatorLink(self._client, self._attachment, ClusterView(), self._counters.relay)
        self._attachment.start()  # before the logs are opened, which may take longer than a lease

    def cluster(self, parts: LocalParts) -> JoinedCluster:
        """Returns a `broker.JoinCluster`."""
        assert self._port is not None
        endpoint = Endpoint(
            self._port,
            self.token,
            ChannelSettings(),
            self._fabric_settings(),
            self.announced,
            self.secured.trust if self.secured is not None else None,
            self._settings.fabric_protection,
        )
        self.relay = join(parts, self.link, endpoint)
        self.relay.distribution.interest.hold()  # until faces have restored their sessions
        return self.relay

    def _fabric_settings(self) -> FabricSettings:
        found = carriers_of(self._settings.carrier)
        # Hosts of a zone repair for each other what they keep. Replicas keep their partition's log anyway.
        held = _HELD_IN_ZONES if RELAY in found else 0
        stream = StreamSettings(hold_bytes=held, rests=self._settings.rest_streams)
        return FabricSettings(
            stream=stream,
            advertised=self._advertised,
            mtu=self._settings.mtu,
            carriers=tuple(found),
            options=found,
        )

    def stare(self) -> JoinedStare:
        """Returns STARE's part. Requires a started relay."""
        from .stare import JoinedStare

        run = self.directory.run
        return JoinedStare(self.relay, self.link, self._counters, run, self._fabric_settings())

    # --- the directory and what it says

    @property
    def _known(self) -> Membership | None:
        return self.directory.meta.membership

    def _check_name(self) -> None:
        if self._known is not None and self._known.name != self._settings.name:
            raise StartError(
                f"{self._data} is of host {self._known.name!r}, and this is {self._settings.name!r}: start"
                f" with --name {self._known.name}, or give another directory with --data"
            )

    def _target(self) -> str:
        """Returns the coordinator's address; empty if the coordinator is to be embedded."""
        return self._settings.join or (self._known.coordinator if self._known is not None else "")

    def _membership(self, target: str) -> Membership:
        instance = self._known.instance if self._known is not None else secrets.token_hex(16)
        return Membership(self._settings.name, instance, target)

    def _listen(self) -> None:
        try:
            stream, datagrams = listen_on_one_number(self._wanted)
        except OSError as error:
            raise cannot_listen("fabric", self._wanted, error) from error
        host, port = stream.getsockname()[:2]
        self._port = Port(Address(host, port), stream, datagrams)

    @property
    def address(self) -> Address:
        """The fabric's listening address."""
        assert self._port is not None
        return self._port.address

    # --- the coordinator

    def _reach(self, target: str) -> None:
        """Prepares to use another daemon's coordinator. Dissolves a cluster of this host alone."""
        known = self._known
        self.token = self._joining_token()
        if known is not None and not known.coordinator:
            become_alone(self.directory, self._settings.fsync)
            known = None
        if known is not None and self.token.cluster_id != self.directory.meta.cluster_id:
            raise StartError(
                f"{self._data} belongs to cluster {self.directory.meta.cluster_id}, and the join token to"
                f" cluster {self.token.cluster_id}: give the token of the first, or another --data directory"
            )
        self._client = (
            CoordinatorClient(target, self.token) if self.secured is None else self.secured.client(target)
        )

    async def _secure(self) -> None:
        """Takes up the trust of a secured host; a new one joins by a one-time token first."""
        settings, given = self._settings, self._settings.join_token
        secured = is_secured(self._data)
        if not secured and not (given and is_one_time(given)):
            return
        from .securing import Secured, join_secured, refuse_plain  # here: it loads `cryptography`

        refuse_plain(settings)
        if not secured:
            await join_secured(
                self._data, self._target(), given, settings.name, settings.fabric, users_path(settings)
            )
        self.secured = Secured(self._data, settings.name, settings.fabric, users_path(settings))
        await self.secured.open(self._target())

    def _joining_token(self) -> JoinToken:
        if self.secured is not None:
            return self.secured.trust.token
        if self._settings.join_token:
            return given_token(self._settings.join_token)
        kept = kept_token(self._data) if self._known is None or self._known.coordinator else None
        if kept is None:
            raise StartError(
                "to join a cluster its token is needed: give --join-token TOKEN or --join-token @FILE, with"
                " what `join-token` in the data directory of its first daemon or coordinator holds"
            )
        return kept

    def _embed(self) -> None:
        """Opens the cluster's own coordinator in this daemon."""
        if self._known is not None and not (self._data / STORE).exists():
            raise StartError(f"{self._data / STORE} is missing: restore it, it lists the topics and hosts")
        self.token = self._own_token()
        settings = ServerSettings(
            self._wanted,
            self._data / STORE,
            self.token,
            self.token.cluster_id,
            fsync=self._settings.fsync,
            fsync_interval=self._settings.fsync_interval_ms / 1000,
            admission=self.secured.admission(self._coordinators_state) if self.secured is not None else None,
        )
        self.coordinator = OpenCoordinator(settings)
        self.coordinator.start()
        self._client = LocalCoordinator(self.coordinator)

    def _coordinators_state(self) -> ClusterState | None:
        return self.coordinator.coordinator.stored.state if self.coordinator is not None else None

    async def _hear_others(self, coordinator: OpenCoordinator) -> None:
        """Lets other hosts reach the coordinator before this host opens its logs, and waits for those that it
        knows: this directory may be an older state, and its coordinator's store with it.
        """
        await self._open_control(coordinator.cluster_id, self.token, coordinator)
        await coordinator.coordinator.older.hear_others(self._settings.name)

    def _own_token(self) -> JoinToken:
        cluster_id = self.directory.meta.cluster_id
        if self.secured is not None:
            return self._secured_token(self.secured, cluster_id)
        if not self._settings.join_token:
            kept = kept_token(self._data)
            own = kept is not None and (self._known is None or kept.cluster_id == cluster_id)
            return kept if kept is not None and own else new_token(cluster_id)
        given = given_token(self._settings.join_token)
        if self._known is not None and given.cluster_id != cluster_id:
            raise StartError(
                f"{self._data} belongs to cluster {cluster_id}, and the join token to another: to join that"
                " one give --join HOST:PORT and an empty data directory, else omit --join-token"
            )
        return given

    def _secured_token(self, secured: Secured, cluster_id: str) -> JoinToken:
        token = secured.trust.token
        if secured.authority is None:
            raise StartError("this host joined a secured cluster: give --join HOST:PORT of its coordinator")
        if self._known is not None and token.cluster_id != cluster_id:
            raise StartError(
                f"{self._data} belongs to cluster {cluster_id}, and its trust to {token.cluster_id}"
            )
        return token

    # --- attaching

    @property
    def announced(self) -> Address:
        """The fabric's address for other hosts."""
        if not self._settings.fabric_advertised:
            return self.address
        given = Address.parse(self._settings.fabric_advertised)
        return Address(given.host, given.port or self.address.port)

    async def _attach(self, attachment: Attachment, target: str) -> None:
        """Attaches. If nobody answers, a host that was attached before continues without, a new one waits."""
        back_off, waiting = BackOff(random.Random()), False
        while True:
            try:
                async with asyncio.timeout(_KNOWN_SECONDS if self._known is not None else None):
                    await attachment.attach()
                return
            except ViewWanted as wanted:
                reason = str(wanted)
                if await self._hand_in(attachment):
                    continue
            except TimeoutError:
                reason = f"the coordinator at {target} does not answer"
            except TreecastError as error:
                if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                    raise StartError(_advised(error, target)) from error
                reason = str(error)
            if self._known is not None:
                _log.warning("host starts from its stored view", reason=reason)
                return
            if not waiting:
                waiting = True
                _log.warning(
                    "waiting for the coordinator", reason=reason, advice="check --join and the daemon there"
                )
            await asyncio.sleep(back_off.pause())

    def _attached(self, answer: pb.AttachResponse) -> None:
        assert self._attachment is not None
        self._check_host(answer)
        take_run(self._attachment, self.directory, answer)
        self.directory_is_old = answer.older

    async def _hand_in(self, attachment: Attachment) -> bool:
        """Hands in the stored view to a coordinator whose store is an older state. Returns whether it took
        it.
        """
        assert self._client is not None
        try:
            await hand_in_stored(self.directory.tables, attachment.request.name, self._client)
        except TreecastError as error:
            _log.warning("coordinator does not take this host's view", error=error)
            return False
        return True

    def _check_host(self, answer: pb.AttachResponse) -> None:
        """Checks the host's id, which belongs to its name for ever unless the coordinator's store was
        replaced.
        """
        known = self.directory.meta.host_id
        if self._known is not None and answer.session.host_id != known:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"the coordinator knows host {self._settings.name!r} as {answer.session.host_id}, and its"
                f" data directory as {known}: the coordinator's store is not the one that this host joined",
            )

    async def _check_topics(self) -> None:
        """Checks, before topics are handed over, that the cluster has no different topics of the same
        names.
        """
        assert self._client is not None
        if self._known is not None or not self.directory.tables.exists():
            return
        brought = own_topics(self.directory.tables)
        if not brought:
            return
        async with aclosing(self._client.watch()) as updates:
            found = await anext(updates)
        for change in found.changes:
            topic = change.entry
            if isinstance(topic, TopicEntry) and brought.get(topic.name, topic.topic_id) != topic.topic_id:
                raise StartError(
                    f"this host and the cluster both have a topic {topic.name!r}, and they are not the same:"
                    " delete one of them, or join with an empty data directory"
                )

    def _begin(self, membership: Membership) -> None:
        assert self._attachment is not None
        host_id = self.directory.meta.host_id
        if self._attachment.attached:
            host_id = self._attachment.session.host_id
        self.directory.join(self.token.cluster_id, host_id, membership)
        self.host = Host(host_id, membership.name)

    def tell(self, control: str) -> None:
        """Logs the host's identity in its cluster, and how others join it."""
        where = "in this daemon" if self.coordinator is not None else f"at {self.link.client.target}"
        _log.info("host joined", host=self.host.host_id, cluster=self.token.cluster_id, coordinator=where)
        if self.coordinator is None:
            return
        if control == OFF or (_is_loopback(control) and not _is_loopback(str(self.announced))):
            _log.warning(
                "hosts on other machines cannot join",
                control=control,
                advice="give --control an address that they can reach",
            )
        elif self.secured is not None:
            _log.info("other hosts can join", advice="make a token for each by `treecast token create`")
        else:
            _log.info("other hosts can join", flags=f"--join {control} --join-token @{self._data / FILE}")

    # --- closing

    def end_watches(self) -> None:
        """Ends other hosts' watches of the coordinator in this daemon, whose address closes next."""
        if self.coordinator is not None:
            self.coordinator.service.end_watches()

    async def close(self) -> None:
        """Closes the parts, after the broker. Safe to call twice, and after an `open` that failed."""
        if self._attachment is not None:
            await self._attachment.close(detach=True)
        if self.secured is not None:
            await self.secured.close()
        if self._client is not None:
            await self._client.close()
        if self.coordinator is not None:
            await self.coordinator.close()
        if self._port is not None:
            self._port.close()
        if hasattr(self, "directory"):
            self.directory.close(clean=self.directory.was_clean)


async def _numeric(host: str, listening: str) -> str:
    """Returns the announced host as a number of the same family as `listening`; empty if there is none."""
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=family)
    except OSError:
        return ""
    return str(found[0][4][0])


def _is_loopback(address: str) -> bool:
    host = Address.parse(address).host
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _advised(error: TreecastError, target: str) -> str:
    if "UNIMPLEMENTED" in error.detail:
        return f"--join {target}: there is no coordinator; give the control address of the daemon that has it"
    return f"--join {target}: {error.detail}" if target else error.detail
