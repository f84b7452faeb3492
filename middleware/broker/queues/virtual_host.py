"""One virtual host: publishing into queues, dead-lettering out of them, and what time brings.

Dead letters are gathered while a queue is at work, and published when it is done: a queue never sees
another change amid its own. What cannot end is cut by `deaths.cycles`.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from . import deaths
from .consumers import Consumer
from .deaths import Death
from .definitions import Definitions
from .message import NEVER, Part, Run
from .queue import MessageQueue
from .recorder import Recorder
from .settings import DEFAULTS, QueueSettings
from .store import RunStore


class VirtualHost(Definitions):
    """`wall` is the time of day in seconds since the Unix epoch, kept by the edge: deaths are dated by it.

    `cycled` counts messages that went in circles and were dropped; `dead_lettered` those that went to an
    exchange.
    """

    def __init__(
        self, name: str, store: RunStore, recorder: Recorder, settings: QueueSettings = DEFAULTS
    ) -> None:
        super().__init__(name, store, recorder, settings)
        self.wall = 0.0
        self.cycled = 0
        self.dead_lettered = 0
        self._dead: deque[tuple[MessageQueue, Run, str]] = deque()
        self._burying = False
        self._due: list[tuple[float, int, MessageQueue]] = []
        self._watched: dict[bytes, float] = {}  # queues in `_due`, by when
        self._serial = 0

    # --- publishing

    def publish(self, run: Run, now: float) -> tuple[bool, list[int]]:
        """Into all queues that it is routed to, and through an outlet: (whether anybody wants it, numbers of
        the messages that some queue refused).

        `Router.may_publish` has been asked by whoever publishes.
        """
        outlet = self.outlets.get(run.exchange)
        if outlet is None:
            return self.deliver(run, now)
        recorded = outlet.records(run)
        wanted = outlet.publish(run)
        if recorded:
            return True, []
        routed, refused = self.deliver(run, now)
        return routed or wanted, refused

    def deliver(self, run: Run, now: float) -> tuple[bool, list[int]]:
        """The same for queues alone."""
        queues = self.route(run)
        refused: list[int] = []
        for queue in queues:
            found = queue.publish(run, now)
            if found:
                refused = sorted({*refused, *found})
            self.watch(queue)
        self.settle_up(now)
        return len(queues) > 0, refused

    # --- dead letters

    def bury(self, queue: MessageQueue, run: Run, part: Part, reason: str, now: float) -> None:
        if queue.arguments.dead_letter_exchange is None or part.count == 0:
            return
        self._dead.append((queue, self._epitaph(queue, run, part, reason), reason))

    def _epitaph(self, queue: MessageQueue, run: Run, part: Part, reason: str) -> Run:
        """What is published of it: the same bytes, with one death more, and no expiration."""
        asked = queue.arguments
        assert asked.dead_letter_exchange is not None
        death = Death(
            queue.name,
            reason,
            run.exchange,
            (run.key, *run.copies),
            int(self.wall),
            run.expiration,
        )
        found = run.dead(part, deaths.died(run.deaths, death))
        found.exchange = asked.dead_letter_exchange
        if asked.dead_letter_key is not None:
            found.key = asked.dead_letter_key
            found.copies = found.hidden_copies = ()
        return found

    def settle_up(self, now: float) -> None:
        """Publishes what queues have given up. To be called after whatever may have made them."""
        if self._burying:
            return
        self._burying = True
        try:
            while self._dead:
                queue, run, reason = self._dead.popleft()
                self._inter(queue, run, reason, now)
        finally:
            self._burying = False

    def _inter(self, source: MessageQueue, run: Run, reason: str, now: float) -> None:
        if run.exchange and run.exchange not in self.exchanges:
            return  # as in RabbitMQ: where it would go is not there
        for queue in self.route(run):
            if reason != deaths.REJECTED and deaths.cycles(run.deaths, queue.name):
                self.cycled += run.count
                continue
            self.dead_lettered += run.count
            queue.publish(run, now)
            self.watch(queue)

    # --- consuming

    def consume(self, queue: MessageQueue, consumer: Consumer, now: float) -> None:
        queue.consume(consumer, now)
        self.touched(queue, now)

    def cancel(self, queue: MessageQueue, consumer: Consumer, now: float) -> None:
        """A consumer goes; the queue with it where that is what it was declared for."""
        if queue.cancel(consumer, now) and self.queues.get(queue.name) is queue:
            self.remove_queue(queue)
        self.touched(queue, now)

    def touched(self, queue: MessageQueue, now: float) -> None:
        """Something was done with a queue: what follows from it is done as well."""
        self.settle_up(now)
        self.watch(queue)

    def clear(self) -> None:
        """The virtual host is no more: nor are its queues, exchanges and policies."""
        for queue in list(self.queues.values()):
            self.remove_queue(queue)
        for exchange in list(self.exchanges.values()):
            if exchange.name in self.exchanges and not exchange.name.startswith(b"amq."):
                self._remove_exchange(exchange)
        for kind, known in (("policy", self.policies), ("operator_policy", self.operator_policies)):
            for name in known:
                self._recorder.deleted(kind, name.encode())
            known.clear()

    def release(self, owner: object) -> None:
        """A connection is gone: so are the queues that were its own."""
        for queue in [queue for queue in self.queues.values() if queue.owner is owner]:
            self.remove_queue(queue)

    # --- time

    def watch(self, queue: MessageQueue) -> None:
        """Looks when the queue has to be looked at again."""
        at = queue.deadline
        if at == NEVER or self._watched.get(queue.name, NEVER) <= at:
            return
        self._watched[queue.name] = at
        self._serial += 1
        heappush(self._due, (at, self._serial, queue))

    @property
    def deadline(self) -> float:
        """When `tick` has something to do; NEVER if it has not."""
        return self._due[0][0] if self._due else NEVER

    def tick(self, now: float) -> None:
        """Lets expire what has to."""
        while self._due and self._due[0][0] <= now:
            at, _, queue = heappop(self._due)
            if self._watched.get(queue.name) == at:
                del self._watched[queue.name]
            known = self.queues.get(queue.name)
            if known is not queue:
                if known is not None:
                    self.watch(known)  # another of the same name, which this entry stood for
                continue
            queue.tick(now)
            if queue.expired(now):
                self.remove_queue(queue)
            self.touched(queue, now)
