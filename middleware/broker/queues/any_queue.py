"""A queue as virtual hosts and sessions see it, wherever its messages are."""

from __future__ import annotations

from treecast.middleware.model.timers import NEVER

from .arguments import QueueArguments, QueueType
from .consumers import Consumer, Consumers, Counts
from .message import Part, Run
from .policies import Policy


class AnyQueue:
    """A queue with `ready` messages of `ready_bytes`, and `unsettled` ones. `owner`: the connection to which
    it is exclusive.

    `asked`: the declared arguments. `policies`: the effective policy and operator policy. `arguments`: the
    result of these. A `MessageQueue` holds its messages, those of a `StreamQueue` are in a log, and those of
    a `RemoteQueue` at another host. It is a base class and no Protocol: compiled code calls it directly.
    """

    def __init__(
        self,
        name: bytes,
        arguments: QueueArguments,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        owner: object = None,
        now: float = 0.0,
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.asked: dict[str, object] = {}
        self.policies: tuple[Policy | None, Policy | None] = (None, None)
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.ready = 0
        self.ready_bytes = 0
        self.unsettled = 0
        self.unsettled_bytes = 0
        self.used_at = now
        self.had_consumers = False
        self.home = 0  # the id of the host that has its messages, 0: this host
        self.deleted = False
        self.promises = False  # the confirm of any message waits for the turn, whatever its delivery mode
        self.counts = Counts()
        self.consumers = Consumers(arguments.single_active, arguments.type is QueueType.QUORUM)

    @property
    def definition(self) -> dict[str, object]:
        """The declaration, without the name."""
        return {
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "exclusive": self.owner is not None,
            "arguments": self.asked,
        }

    def change(self, arguments: QueueArguments, now: float) -> None:
        """Applies arguments changed by a policy."""
        self.arguments = arguments

    def publish(self, run: Run, now: float) -> list[int]:
        """Takes the run's messages, and gives them to consumers that have room.

        Returns the indexes of refused messages, if the queue is full and its overflow setting refuses them.
        """
        raise NotImplementedError

    # --- consuming

    def consume(self, consumer: Consumer, now: float) -> None:
        """Adds a consumer. Refuses it with ACCESS_REFUSED if another's exclusive use, or its own, forbids
        it."""
        raise NotImplementedError

    def cancel(self, consumer: Consumer, now: float, *, ends: bool = False) -> bool:
        """Removes a consumer, which keeps its unsettled messages. Returns whether the queue has to be deleted
        as well.

        `ends`: its channel does, and returns these messages. The caller has to call `pump` after that, so
        that others get them before those behind them.
        """
        raise NotImplementedError

    def pump(self, now: float) -> None:
        """Delivers ready messages to consumers that have room."""
        raise NotImplementedError

    def get(self, now: float, no_ack: bool) -> Part | None:
        """Returns one message for `basic.get`, or None. The caller has to settle it unless `no_ack`."""
        raise NotImplementedError

    # --- settling

    def settle(self, part: Part, offset: int, count: int, consumer: Consumer | None) -> None:
        """Settles `count` messages of a part, from index `offset` on."""
        raise NotImplementedError

    def reject(self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float) -> None:
        """Rejects messages, which are dead-lettered if the queue has a dead-letter exchange."""
        raise NotImplementedError

    def requeue(
        self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float, *, failed: bool
    ) -> None:
        """Returns messages to their old positions. `failed`: the delivery failed and is counted. The caller
        has to call `pump`."""
        raise NotImplementedError

    # --- emptying

    def purge(self) -> int:
        """Removes all ready messages. Returns their number."""
        raise NotImplementedError

    def delete(self) -> int:
        """Removes all messages, and cancels all consumers.

        Returns the number of ready messages. As in RabbitMQ, they are not dead-lettered.
        """
        raise NotImplementedError

    # --- time: a queue without messages of its own has no deadlines

    def tick(self, now: float) -> None:
        """Handles time-outs of messages. `expired` tells whether the queue itself has expired."""

    @property
    def deadline(self) -> float:
        """The time when `tick` has something to do, or the queue expires; NEVER if neither."""
        return NEVER

    def expired(self, now: float) -> bool:
        """Whether the queue has been unused for its expiry time."""
        return False
