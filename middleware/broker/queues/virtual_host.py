"""One virtual host: publishing into queues, dead-lettering out of them, and time-outs.

Dead letters are gathered while a queue works, and published when it is done: a queue is never re-entered
during its own changes. `deaths.cycles` ends endless loops.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from mypy_extensions import mypyc_attr

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER, Due

from . import deaths
from .any_queue import AnyQueue
from .bindings import Bindings
from .consumers import Consumer
from .deaths import Death
from .exchange import Destination
from .exchange_definitions import ExchangeDefinitions
from .ledger import Ledger
from .message import Part, Run
from .policed import Policies
from .queue import MessageQueue
from .queue_definitions import QueueDefinitions
from .recorder import Recorder
from .refusals import text
from .routing import Outlet, Router, by_content
from .settings import DEFAULTS, QueueSettings
from .store import RunStore

_log = Log(__name__)


class Departures(Protocol):
    """Takes runs that were published to queues of other hosts: `joined.JoinedQueues`."""

    def seal(self, vhost: VirtualHost, run: Run) -> bool:
        """The run is in all queues that it was routed to. Returns whether a confirm has to wait for it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class VirtualHost:
    """A virtual host. `wall` is the time of day in seconds since the Unix epoch, set by the edge, for the
    dates of deaths.

    `cycled` counts messages that were dropped because of a cycle; `dead_lettered` counts messages that went
    to an exchange.
    """

    def __init__(
        self, name: str, store: RunStore, recorder: Recorder, settings: QueueSettings = DEFAULTS
    ) -> None:
        self.name = name
        self.router = Router(name)
        self.exchanges = self.router.exchanges
        self.queues = self.router.queues
        self.outlets: dict[bytes, Outlet] = {}  # by exchange
        self.store = store
        self.ledger = Ledger(recorder)
        self._due: Due[AnyQueue] = Due()
        self.policies = Policies(self.router, self.ledger, self.touched)
        self.bindings = Bindings(self.router, self.ledger)
        self.exchange_definitions = ExchangeDefinitions(
            self.router, self.ledger, self.policies, self.bindings
        )
        self.queue_definitions = QueueDefinitions(
            self.router, self.ledger, self.policies, self.bindings, store, self, self._due, settings
        )
        self.wall = 0.0
        self.cycled = 0
        self.dead_lettered = 0
        self.departures: Departures | None = None  # None: the host is not joined
        self.departed = False  # whether a run was promised to another host or a log since this was reset
        self._dead: deque[tuple[AnyQueue, Run, str]] = deque()
        self._burying = False

    # --- publishing

    def publish(self, run: Run, now: float) -> tuple[bool, list[int]]:
        """Publishes a run to all queues that it is routed to, and to an outlet.

        Returns (whether there are receivers, indexes of the messages that some queue refused). The caller has
        to check `Router.may_publish` before.
        """
        outlet = self.outlets.get(run.exchange)
        if outlet is None:
            return self.deliver(run, now)
        keys = outlet.direct(run)
        wanted, refused = outlet.publish(run)
        if keys:
            queues = self._beside_outlet(run, keys)
            wanted = wanted or len(queues) > 0
            refused = _both(refused, self._hand_to(queues, run, now))
        return wanted, refused

    def _beside_outlet(self, run: Run, keys: tuple[bytes, ...]) -> list[AnyQueue]:
        """Returns the queues that get a run by these keys, some of its own, although it has an outlet."""
        queues = self.route(run) if len(keys) == len(run.keys) else self.router.route_by(keys, run)
        if self.departures is not None:  # the outlet reaches other hosts
            queues = [queue for queue in queues if queue.home == 0]
        return queues

    def queues_for(self, run: Run) -> list[AnyQueue]:
        """Returns the queues that `publish` would hand the run to."""
        outlet = self.outlets.get(run.exchange)
        if outlet is None:
            return self.route(run)
        keys = outlet.direct(run)
        return self._beside_outlet(run, keys) if keys else []

    def deliver(self, run: Run, now: float, *, here: bool = False) -> tuple[bool, list[int]]:
        """As `publish`, for queues only. `here`: only for queues of this host, as the outlet reaches
        others.
        """
        queues = self.route(run)
        if here and self.departures is not None:
            queues = [queue for queue in queues if queue.home == 0]
        return len(queues) > 0, self._hand_to(queues, run, now)

    def route(self, run: Run) -> list[AnyQueue]:
        if not run.copies and not run.hidden_copies:  # nearly all runs are of a route that is known
            found = self.router.routes.get((run.exchange, run.key))
            if found is not None:
                return found
        return self.router.route(run)

    def _hand_to(self, queues: list[AnyQueue], run: Run, now: float) -> list[int]:
        """Publishes a run to queues. Returns the indexes of the messages that some queue refused."""
        refused: list[int] = []
        for queue in queues:
            refused = _both(refused, queue.publish(run, now))
            if queue.promises:
                self.departed = True
            if not queue.home:  # one of another host has no times of its own here
                self.watch(queue)
        self.follow_up(run, now)
        return refused

    def follow_up(self, run: Run, now: float) -> None:
        """Has to be called when a run is in all its queues."""
        self._depart(run)
        self.settle_up(now)

    def _depart(self, run: Run) -> None:
        """Passes on what was published to queues of other hosts."""
        if self.departures is not None and self.departures.seal(self, run):
            self.departed = True

    # --- dead letters

    def bury(self, queue: AnyQueue, run: Run, part: Part, reason: str, now: float) -> None:
        if queue.arguments.dead_letter_exchange is None or part.count == 0:
            return
        self._dead.append((queue, self._epitaph(queue, run, part, reason), reason))

    def _epitaph(self, queue: AnyQueue, run: Run, part: Part, reason: str) -> Run:
        """Returns the run to dead-letter: the same bytes, with one more death and no expiration."""
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
        """Publishes the gathered dead letters. Has to be called after everything that may produce some."""
        if self._burying:
            return
        self._burying = True
        try:
            while self._dead:
                queue, run, reason = self._dead.popleft()
                self._inter(queue, run, reason, now)
        finally:
            self._burying = False

    def _inter(self, source: AnyQueue, run: Run, reason: str, now: float) -> None:
        if run.exchange and run.exchange not in self.exchanges:
            return  # dropped as in RabbitMQ, as the exchange does not exist
        for one in run.singles() if by_content(self.exchanges, run.exchange) else [run]:
            for queue in self.route(one):
                if reason != deaths.REJECTED and deaths.cycles(one.deaths, queue.name):
                    self.cycled += one.count
                    continue
                self.dead_lettered += one.count
                queue.publish(one, now)
                self.watch(queue)
            self._depart(one)

    def displace(self, queue: AnyQueue, now: float) -> list[Run]:
        """Empties a queue whose name belongs to a queue of another host, and cancels its consumers. Returns
        what was ready in it. What its consumers have not settled ends with it.

        If the disk does not read all of it, the rest stays stored under its name, to move after a restart.
        """
        found: list[Run] = []
        try:
            while isinstance(queue, MessageQueue) and (part := queue.take_ready()) is not None:
                run = part.run
                assert run is not None
                found.append(run.dead(part, run.deaths))
                queue.release(part)
        except TreecastError as error:
            _log.error("messages move when this host is started again", queue=text(queue.name), error=error)
            if isinstance(queue, MessageQueue):
                queue.abandon()
            return found
        queue.delete()
        if queue.durable:
            self.bindings.stored_elsewhere(Destination(queue.name, False))
            self.ledger.recorder.deleted("queue", queue.name)
        return found

    # --- consuming

    def consume(self, queue: AnyQueue, consumer: Consumer, now: float) -> None:
        queue.consume(consumer, now)
        self.touched(queue, now)

    def cancel(self, queue: AnyQueue, consumer: Consumer, now: float, *, ends: bool = False) -> None:
        """Removes a consumer, and deletes the queue if it is declared auto-delete and this was the last.

        `ends`: see `AnyQueue.cancel`.
        """
        if queue.cancel(consumer, now, ends=ends) and self.queues.get(queue.name) is queue:
            self.queue_definitions.remove(queue)
        self.touched(queue, now)

    def touched(self, queue: AnyQueue, now: float) -> None:
        """Follows up on a change to a queue: publishes dead letters and schedules its time-outs."""
        self.settle_up(now)
        self.watch(queue)

    def clear(self) -> None:
        """Deletes all queues, exchanges and policies of a deleted virtual host."""
        for queue in list(self.queues.values()):
            self.queue_definitions.remove(queue)
        for exchange in list(self.exchanges.values()):
            if exchange.name in self.exchanges and not exchange.name.startswith(b"amq."):
                self.bindings.end_exchange(exchange)
        self.policies.clear()

    def release(self, owner: object) -> None:
        """Deletes the exclusive queues of a closed connection."""
        for queue in [queue for queue in self.queues.values() if queue.owner is owner]:
            self.queue_definitions.remove(queue)

    # --- time

    def watch(self, queue: AnyQueue) -> None:
        """Schedules the queue's next time-out."""
        at = queue.deadline
        if at != NEVER and at < self._due.time_of(queue) and self.queues.get(queue.name) is queue:
            self._due.put(queue, at)

    @property
    def deadline(self) -> float:
        """The time when `tick` has something to do; NEVER if there is nothing."""
        return self._due.next() if self._due.places else NEVER

    def tick(self, now: float) -> None:
        """Expires the messages and queues that are due."""
        while self._due.next() <= now:
            queue = self._due.pop()
            queue.tick(now)
            if queue.expired(now):
                self.queue_definitions.remove(queue)
            self.touched(queue, now)


def _both(one: list[int], other: list[int]) -> list[int]:
    """Returns the indexes in either list, in order."""
    if not one or not other:
        return one or other
    return sorted({*one, *other})
