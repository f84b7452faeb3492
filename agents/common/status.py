"""An agent's state, its counts, and its troubles."""

from __future__ import annotations

from msgspec import Struct, field


class AgentCounters(Struct):
    """Counts of messages since the agent's start."""

    taken: int = 0  # from the broker, for other sites
    sent: int = 0  # to other sites, once each however many want it
    unwanted: int = 0  # taken from the broker, and wanted by no other site any more
    looped: int = 0  # had come from another site, and stay here
    refused_here: dict[str, int] = field(default_factory=dict)  # not sent to other sites, by reason
    received: int = 0  # from other sites
    published: int = 0  # confirmed by the broker
    again: int = 0  # published again after a connection was lost
    refused_there: dict[str, int] = field(default_factory=dict)  # not taken by the broker, by reason
    connects: int = 0
    held: int = 0  # times that the broker had to keep its messages

    def refuse_here(self, reason: str, count: int) -> None:
        self.refused_here[reason] = self.refused_here.get(reason, 0) + count

    def refuse_there(self, reason: str, count: int) -> None:
        self.refused_there[reason] = self.refused_there.get(reason, 0) + count


class Trouble(Struct, frozen=True):
    """Something that is wrong. `what`: which part; `detail`: the reason, and what to do next."""

    what: str
    detail: str


class AgentStatus(Struct, frozen=True):
    """The state at one moment. `broker`: name and version of the broker, empty while it is not connected.

    `lag`: messages from other sites that the broker has not confirmed. `owed`: messages that other sites have
    not acknowledged. `spool_bytes`: what is stored of both. `exchanges`: those that are carried, with their
    types. `sites`: other hosts of the cluster that want something, with the number of their patterns.
    """

    kind: str
    site: str
    host_id: int
    cluster_id: str
    broker: str
    connected: bool
    serving: bool
    interest: str
    lag: int
    owed: int
    spool_bytes: int
    exchanges: dict[str, str]
    sites: dict[str, int]
    counters: AgentCounters
    troubles: list[Trouble]
