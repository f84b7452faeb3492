"""The harness' interface of servers in a row: data written to the first is read from the last."""

from __future__ import annotations

import abc
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .peer import Peer

Protocol = Literal["kafka", "amqp"]


@dataclass(frozen=True, slots=True)
class Route:
    """The ends of a load's route.

    Kafka: the topic `source` at `near` arrives as `target` at `far`, one partition. AMQP: messages published
    to the exchange `source` at `near` arrive in the queue `target` at `far`. `committed`: a Kafka consumer
    reads committed records only, and markers of transactions are between them.
    """

    protocol: Protocol
    near: tuple[str, int]
    far: tuple[str, int]
    source: str
    target: str
    committed: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Route:
        near, far = found["near"], found["far"]
        return cls(**{**found, "near": (near[0], near[1]), "far": (far[0], far[1])})


class Chain(Peer):
    """One or more servers with a route through them. `start` returns once a record has come all the way.

    With `own_cores`, each host's processes keep to a core of their own, as servers on two machines would.
    """

    own_cores = False

    @property
    @abc.abstractmethod
    def route(self) -> Route:
        """The route; valid while the servers run."""

    @abc.abstractmethod
    def hosts(self) -> list[list[int]]:
        """Returns the processes of each host, the near one first."""

    def pids(self) -> list[int]:
        return [pid for host in self.hosts() for pid in host]

    def missing(self) -> str:
        """Returns what must be installed before it can run here, or an empty string."""
        return ""
