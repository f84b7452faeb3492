"""`Distribution`: interest, carrier choice and event streams of a host, as one `cluster.Life`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from treecast.middleware.api.entries import HomeEntry, HomeKind, HostEntry, InterestEntry
from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.wishes import Wish

from .carrier_choice import CarrierChoice
from .carrier_group import CarrierSettings
from .coordinator_link import CoordinatorLink
from .interest import Interest, InterestSettings
from .partitions.replicas import Replicas

if TYPE_CHECKING:
    from .events.events import Events


class HostListener(Protocol):
    """Is told of hosts that can be reached, and that cannot any more."""

    def host_up(self, host: int) -> None: ...

    def host_down(self, host: int) -> None: ...


class Distribution:
    """Passes `host_up` and `host_down` on to its parts and to `partitions`."""

    def __init__(
        self,
        link: CoordinatorLink,
        methods: Methods,
        fabric: Fabric,
        partitions: Replicas,
        interest: InterestSettings,
        carriers: CarrierSettings,
        counters: RelayCounters,
    ) -> None:
        self._link = link
        self._own = fabric.host
        self._fabric = fabric
        self.partitions = partitions
        self.interest = Interest(methods, interest, counters, self._record)
        self.choice = CarrierChoice(
            fabric,
            methods,
            self._allot,
            self._release,
            carriers,
            counters,
            random.Random(),
        )
        self.events: Events | None = None  # set between `join_events` and `leave_events`
        self.up: set[int] = set()
        self.listeners: list[HostListener] = []
        partitions.following.on_interest = self._wanted
        if partitions.leading is not None:
            self.choice.carry(partitions.leading)
            partitions.leading.on_followers = lambda topic: self.choice.soon()
        link.view.hosts.subscribe(self._host_changed)
        link.view.homes.subscribe(self._home_changed)
        link.view.interest.subscribe(self._interest_recorded)

    # --- life

    async def start(self) -> None:
        """Starts with the recorded interest of other hosts, before they can be reached."""
        for wanted in self._link.view.interest:
            if wanted.host_id != self._own:
                self.interest.remember(wanted.host_id, wanted.patterns)
        self.choice.start()

    async def close(self) -> None:
        await self.choice.close()
        await self.interest.close()

    def join_events(self, events: Events) -> None:
        """Starts `events` and passes changes of hosts on to them, until `leave_events`."""
        self.events = events
        cluster = {host.host_id for host in self._link.view.hosts}
        events.start(self.up, cluster if self._own in cluster else None)
        events.sending.on_begun = self.choice.begun
        self.choice.carry(events.sending)

    async def leave_events(self) -> None:
        events, self.events = self.events, None
        if events is not None:
            self.choice.drop(events.sending)
            await events.close()

    def host_up(self, host: int, incarnation: int) -> None:
        self.up.add(host)
        self._fabric.paths.host_up(host)
        self.interest.host_up(host)
        self.choice.host_up(host)
        self.partitions.host_up(host, incarnation)
        if self.events is not None:
            self.events.host_up(host)
        for listener in self.listeners:
            listener.host_up(host)

    def host_down(self, host: int) -> None:
        self.up.discard(host)
        self._fabric.paths.host_down(host)
        self.interest.host_down(host)
        self.partitions.host_down(host)
        if self.events is not None:
            self.events.host_down(host)
        for listener in self.listeners:
            listener.host_down(host)

    def _host_changed(self, before: HostEntry | None, after: HostEntry | None) -> None:
        if after is None and before is not None:
            self.interest.host_left(before.host_id)
            self.choice.host_left(before.host_id)
            if self.events is not None:
                self.events.host_left(before.host_id)

    def _home_changed(self, before: HomeEntry | None, after: HomeEntry | None) -> None:
        if self.events is not None and after is not None and after.kind is HomeKind.SHARE:
            self.events.shares.moved(after.id, after.host_id)

    def _interest_recorded(self, before: InterestEntry | None, after: InterestEntry | None) -> None:
        """Takes what the coordinator recorded after this host's stored view; the host may be down since."""
        if after is not None and after.host_id != self._own:
            self.interest.remember(after.host_id, after.patterns)

    # --- interest from followed partitions

    def _wanted(self, topic: Topic, wanted: bool) -> None:
        wish = Wish.of_kafka(topic.name)
        if wanted:
            self.interest.want(wish)
        else:
            self.interest.unwant(wish)

    # --- the coordinator

    async def _record(self, version: int, patterns: Sequence[str]) -> object:
        return await self._link.client.put_interest(self._link.session, version, patterns)

    async def _allot(self, levels: Sequence[str]) -> int:
        state = await self._link.client.allot_state(self._link.session, levels)
        return state.state_id

    async def _release(self, state_id: int) -> None:
        await self._link.client.release_state(self._link.session, state_id)
