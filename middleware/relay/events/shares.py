"""Shared subscriptions across hosts: each message goes to one member, on whichever host it is.

Like a group, a shared subscription has a home: the host that asked the coordinator first, or the next one to
ask after that host has been away for long. Only the home announces interest in the filter. It receives each
message and hands it to the member whose turn it is: a client of its own, or another host with members. To
another host the message goes by the stream for that host, under a topic that no client can publish to:

    "$share/" | name | "/" | filter | U+0000 | topic

That host hands it to one of its members. While no home can be found because the coordinator is away, each
host serves its own members.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from treecast.middleware.api.entries import Presence
from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    SharedGroup,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.fabric.channel import Methods, Nothing
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import EventCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.link import Link, called

from .ports import SHARE, EventSettings, ShareRequest
from .sending import Outbox

_log = Log(__name__)

PREFIX: Final = b"$share/"
_QOS: Final = 2
_MOST_MEMBERS: Final = 100_000  # per host

Key = tuple[bytes, bytes]  # name, filter


class ShareHomes(Protocol):
    """Look-up of the homes of shared subscriptions."""

    async def home(self, id: str, *, ask: bool) -> int:
        """Returns the home's host id. With `ask` the coordinator is asked even if a home is known.

        Raises COORDINATOR_UNAVAILABLE if no home is known and the coordinator does not answer.
        """


class LinkHomes:
    """Implements `ShareHomes` over the view and the coordinator."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def home(self, id: str, *, ask: bool) -> int:
        """Returns the home. The coordinator makes this host the home if there is none or its host has been
        away for long."""
        known = self._link.view.share_home(id)
        if known is not None and not ask and self._present(known.host_id):
            return known.host_id
        try:
            found = await called(self._link.client.share_home(self._link.session, id))
        except TreecastError as error:
            if known is not None and error.fault is Fault.COORDINATOR_UNAVAILABLE:
                return known.host_id
            raise
        return found.host_id

    def _present(self, host_id: int) -> bool:
        host = self._link.view.host(host_id)
        return host is not None and host.presence is Presence.ATTACHED


class RemoteMember(Subscriber):
    """A member of a shared subscription on another host."""

    def __init__(self, serial: int, host: int, key: Key, outbox: Outbox, up: dict[int, None]) -> None:
        super().__init__(serial)
        self.foreign = True
        self.host = host
        self._key = key
        self._outbox = outbox
        self._up = up

    @property
    def ready(self) -> bool:
        return self.host in self._up

    def take(self, message: Message, target: Target) -> None:
        self._outbox.add_alone(enveloped(message, self._key), self.host)


class _Share:
    """The state of one shared subscription with members here."""

    def __init__(self) -> None:
        self.home = 0  # 0: unknown
        self.told = 0  # number of members that the home was told
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.again = False


class Shares:
    """All shared subscriptions of one host. `up`: hosts with a channel."""

    def __init__(
        self,
        host: int,
        hub: PubSub,
        outbox: Outbox,
        homes: ShareHomes,
        methods: Methods,
        up: dict[int, None],
        settings: EventSettings,
        counters: EventCounters,
    ) -> None:
        self._host = host
        self._hub = hub
        self._outbox = outbox
        self._homes = homes
        self._methods = methods
        self._up = up
        self._settings = settings
        self._counters = counters
        self._shares: dict[Key, _Share] = {}
        self._members: dict[tuple[Key, int], list[Subscription]] = {}  # other hosts' members, at the home
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False

    # --- life

    def start(self) -> None:
        """Starts with the subscriptions of resumed sessions, served here until their homes are known."""
        self._methods.register(SHARE, self._joined)
        for group in self._hub.shared():
            self.changed(group)

    async def close(self) -> None:
        self._closed = True
        tasks = [share.task for share in self._shares.values() if share.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- waiting

    @property
    def pending(self) -> bool:
        """Whether a home is not known yet or has not been told of its members here."""
        return any(not share.settled for share in self._shares.values())

    async def settled(self) -> None:
        """Returns when nothing is pending, or after `share_wait`."""
        if not self.pending:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        await asyncio.wait([done], timeout=self._settings.share_wait)

    def _settle(self, share: _Share) -> None:
        share.settled = True
        if not self.pending:
            for done in self._waiting:
                if not done.done():
                    done.set_result(None)
            self._waiting.clear()

    # --- members here

    def changed(self, group: SharedGroup) -> None:
        """Handles a change of the local members of a group."""
        self._tend((group.name, group.filter))

    def _tend(self, key: Key) -> None:
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share()
        share.settled = False
        if share.task is not None:
            share.again = True
            return
        share.task = asyncio.get_running_loop().create_task(
            self._tend_until_settled(key, share), name="share"
        )

    async def _tend_until_settled(self, key: Key, share: _Share) -> None:
        ask = False
        try:
            while not self._closed:
                share.again = False
                try:
                    await self._tend_once(key, share, ask)
                    if not share.again:
                        break
                    ask = False
                except TreecastError as error:
                    ask = error.fault is Fault.NOT_COORDINATOR
                    if not ask:
                        _log.info("shared subscription failed", subscription=_id(key), error=error)
                        self._serve_alone(key, share, error)
                        await asyncio.sleep(self._settings.share_again)
        finally:
            share.task = None
        self._settle(share)
        if not share.told and not self._hub.shared_members(*key):
            self._shares.pop(key, None)

    async def _tend_once(self, key: Key, share: _Share, ask: bool) -> None:
        members = self._hub.shared_members(*key)
        if not members and not share.told:
            return
        home = await self._homes.home(_id(key), ask=ask)
        if home != share.home and share.home not in (0, self._host) and share.told:
            share.told = 0  # the new home has not been told yet
        share.home = home
        if home == self._host:
            share.told = 0
            self._hub.root_shared(*key)
            return
        request = ShareRequest(name=key[0], filter=key[1], members=members)
        await self._methods.ask(home, SHARE, request, self._settings.call)
        share.told = members
        self._give_up(key)

    def _serve_alone(self, key: Key, share: _Share, error: TreecastError) -> None:
        """Serves the members here while the coordinator is away: duplicates are better than losses."""
        if error.fault is Fault.COORDINATOR_UNAVAILABLE and share.home == 0:
            self._hub.root_shared(*key)
            self._counters.shares_alone += 1
        self._settle(share)

    def _give_up(self, key: Key) -> None:
        """Stops acting as the home: drops other hosts' members and interest in the filter."""
        for place in [place for place in self._members if place[0] == key]:
            self._set_members(place, 0)
        self._hub.unroot_shared(*key)

    # --- members of other hosts

    def _joined(self, host: int, request: ShareRequest, body: memoryview) -> tuple[Nothing, Buffer]:
        """Takes another host's number of members, as the home.

        A host calls this only if the coordinator named this host as the home.
        """
        if request.members > _MOST_MEMBERS or not request.name or not request.filter:
            raise TreecastError(
                Fault.INVALID_REQUEST, "a shared subscription needs a name, a filter and members"
            )
        key = (request.name, request.filter)
        share = self._shares.get(key)
        if share is not None and share.home not in (0, self._host):
            raise TreecastError(Fault.NOT_COORDINATOR, f"{_id(key)} is not at home here")
        self._set_members((key, host), request.members)
        if self._hub.shared_members(*key) + self._count(key):
            self._hub.root_shared(*key)
        return Nothing(), b""

    def _count(self, key: Key) -> int:
        return sum(len(members) for place, members in self._members.items() if place[0] == key)

    def _set_members(self, place: tuple[Key, int], wanted: int) -> None:
        key, host = place
        members = self._members.setdefault(place, [])
        while len(members) < wanted:
            member = RemoteMember(self._hub.next_serial(), host, key, self._outbox, self._up)
            subscription = Subscription(member, key[1], _QOS, False, True)
            self._hub.subscribe_shared(key[0], subscription)
            members.append(subscription)
        while len(members) > wanted:
            self._hub.unsubscribe_shared(key[0], members.pop().subscriber, key[1])
        if not members:
            del self._members[place]

    def take(self, message: Message) -> None:
        """Hands a message from the home to one of the local members."""
        key, topic = read_envelope(message.topic)
        opened = Message(
            topic, message.payload, message.qos, message.retain, message.properties, message.expires_at
        )
        if not self._hub.hand_to_shared(*key, opened):
            self._counters.shares_gone += 1

    # --- hosts come and go, homes move

    def host_up(self, host: int) -> None:
        """Tells a newly connected home its members again: it may be a new run."""
        for key, share in list(self._shares.items()):
            if share.home in (0, host):
                self._tend(key)

    def host_down(self, host: int) -> None:
        """Looks for a new home: the coordinator appoints one if the host stays away for long."""
        for key, share in list(self._shares.items()):
            if share.home == host:
                self._tend(key)

    def host_left(self, host: int) -> None:
        for place in [place for place in self._members if place[1] == host]:
            self._set_members(place, 0)

    def moved(self, id: str, host: int) -> None:
        """Applies the coordinator's notice of a home's host."""
        for key, share in list(self._shares.items()):
            if _id(key) == id and share.home != host:
                if share.home == self._host:
                    share.home = 0
                self._tend(key)


def _id(key: Key) -> str:
    """Returns the shared subscription's id at the coordinator."""
    return (key[0] + b"/" + key[1]).decode()


def enveloped(message: Message, key: Key) -> Message:
    """Returns the message in its envelope for a member on another host."""
    topic = PREFIX + key[0] + b"/" + key[1] + b"\0" + message.topic
    return Message(topic, message.payload, message.qos, False, message.properties, message.expires_at)


def read_envelope(topic: bytes) -> tuple[Key, bytes]:
    """Returns ((name, filter), the message's topic). Raises INVALID_TOPIC if it is no envelope."""
    share, zero, rest = topic.removeprefix(PREFIX).partition(b"\0")
    name, slash, filter = share.partition(b"/")
    if not (zero and slash and rest):
        raise TreecastError(Fault.INVALID_TOPIC, f"{topic!r} is for no shared subscription")
    return (name, filter), rest
