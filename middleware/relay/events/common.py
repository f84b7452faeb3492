"""What sending and receiving of events both stand on."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.broker.pubsub import PubSub
from treecast.middleware.broker.turn import Turn
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import EventCounters

from .outbox import Outbox, RemoteHost
from .ports import EventSettings


class Common(Struct, frozen=True):
    """Of one host. `remotes`: hosts that want anything; it changes as these come and go."""

    hub: PubSub
    turn: Turn
    outbox: Outbox
    remotes: dict[int, RemoteHost]
    methods: Methods
    fabric: Fabric
    settings: EventSettings
    counters: EventCounters
