"""`Events`: carries messages published on a joined host to the hosts that want them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from treecast.middleware.broker.pubsub import PubSub, SharedGroup, Waiter
from treecast.middleware.broker.turn import Turn
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import EventCounters
from treecast.middleware.model.wishes import Wish
from treecast.middleware.relay.interest import Interest
from treecast.middleware.storage.tables import Tables

from .ports import Common, EventSettings
from .receiving import Receiving
from .retained import Retained
from .sending import Outbox, RemoteHost, Sending
from .shares import ShareHomes, Shares
from .wishes import Wishes


class Events:
    """The event streams of a host, from `start`, after persistent sessions are resumed, to `close`."""

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        run: int,
        interest: Interest,
        methods: Methods,
        fabric: Fabric,
        counters: EventCounters,
        clock: Callable[[], float],
        homes: ShareHomes,
        settings: EventSettings | None = None,
        tables: Tables | None = None,
        agent: bool = False,
    ) -> None:
        """`run`: this host's run number, the epoch of its streams. `clock` returns seconds since the Unix
        epoch. `tables`: where accounts are stored; None: they are not. `agent`: see `Wishes`."""
        settings = settings or EventSettings()
        self._hub = hub
        self._turn = turn
        self._host = fabric.host
        self._interest = interest
        self.remotes: dict[int, RemoteHost] = {}
        self.outbox = Outbox(hub, turn)
        self._up: dict[int, None] = {}  # hosts with a channel
        self.retained = Retained(hub, lambda: self._up, methods, settings, counters)
        self.shares = Shares(
            fabric.host, hub, self.outbox, homes, interest, methods, self._up, settings, counters
        )
        self.wishes = Wishes(hub, interest, self.outbox, self.remotes, self.shares, agent)
        common = Common(hub, turn, self.outbox, self.remotes, methods, fabric, settings, counters)
        self.sending = Sending(run, common, tables)
        self.receiving = Receiving(common, clock, self.shares)

    def start(self, up: Iterable[int], cluster: Collection[int] | None = None) -> None:
        """Starts all parts and announces this host's interest.

        `up`: hosts with a channel now. `cluster`: all hosts of the cluster, if known; other hosts with
        streams here have left while this host was down.
        """
        self.receiving.start()
        self.retained.start()
        self.wishes.start()
        for host in up:
            self.host_up(host)
        self.sending.start()
        self.shares.start()
        if cluster is not None:
            for host in self.sending.hosts().difference(cluster):
                self.host_left(host)
        self._turn.add_departures(self.sending)
        # Last: from now on other hosts send what is wanted here, and all that takes it has started.
        self._interest.release()

    async def close(self) -> None:
        await self.wishes.close()
        await self.shares.close()
        self._turn.remove_departures(self.sending)
        await self.retained.close()
        await self.sending.close()
        self.receiving.close()

    # --- calls of the hub

    @property
    def host(self) -> int:
        """Implements `pubsub.Reach`, like the methods that follow."""
        return self._host

    @property
    def buries(self) -> bool:
        return True

    def wanted(self, wish: Wish) -> None:
        self.wishes.wanted(wish)

    def unwanted(self, wish: Wish) -> None:
        self.wishes.unwanted(wish)

    def known(self, waiter: Waiter) -> bool:
        return self.wishes.known(waiter)

    def collect(self, filters: list[bytes], waiter: Waiter) -> bool:
        return self.retained.collect(filters, waiter)

    def begin(self) -> None:
        self.shares.begin()

    def grouped(self, group: SharedGroup) -> None:
        self.shares.grouped(group)

    def members_changed(self, group: SharedGroup) -> None:
        self.shares.changed(group)

    # --- hosts come and go

    def host_up(self, host: int) -> None:
        self._up[host] = None
        self.sending.host_up(host)
        self.shares.host_up(host)

    def host_down(self, host: int) -> None:
        self._up.pop(host, None)
        self.sending.host_down(host)
        self.shares.host_down(host)

    def host_left(self, host: int) -> None:
        # Read before `sending` forgets the host's streams.
        unsettled = self.sending.unsettled(host)
        self.sending.host_left(host)
        self.receiving.host_left(host)
        self.shares.host_left(host, unsettled)
