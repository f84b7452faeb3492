"""Random sequences of AMQP methods at two servers: what a client sees of both has to be the same.

    python -m tests.foreign.amqp_methods [--seeds FIRST:END] [--steps N] [--far] [--verbose]

One server is a daemon. The other is the system's RabbitMQ, or with `--far` the second host of a cluster,
while all queues are declared at the first. Each seed is one sequence, with a new connection and without the
queues of the one before; it ends at its first difference. Every third one uses transactions, the others
publisher confirms.

What is compared: counts, messages with their properties and deaths, returns, confirms, deliveries of each
consumer, reply codes. Reply texts are not compared. What differs by design is not tried, or not compared:
`x-delivery-count` (a header of RabbitMQ 4), CC of dead letters (RabbitMQ 4 keeps it), changes of definitions
in a transaction (RabbitMQ routes at the publish, the daemon at the commit), and with `--far` queues that
refuse publishes (the confirm comes from the origin) and `amq.topic` (its messages go as MQTT's do).

Exit code 0: no difference. 2: RabbitMQ is not installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from bench.peers.rabbitmq.node import missing
from pamqp import base, commands
from tests.fault.amqp_wire import Basic, Channel, Connection, Queue, Refused, Wire, content, method

from .amqp_sequences import OWN, QUEUES, Sequences, Step
from .pika_suite import rabbitmq
from .sequences import Difference, Run, command, one_host, only, two_hosts

Exchange, Confirm, Tx = commands.Exchange, commands.Confirm, commands.Tx
Address = tuple[str, int]

SETTLE_S: Final = 0.006
CLOSED_S: Final = 0.06  # after a connection was closed
PATIENCE_S: Final = 5.0  # until deliveries are the same
ANSWER_S: Final = 30.0


# --- clients


def settle_down(seconds: float = SETTLE_S) -> None:
    """Waits for what no answer of RabbitMQ waits for: its processes return messages and move dead letters by
    messages to each other. Queues of a daemon, here and at another host, have done so before the next answer.
    """
    time.sleep(seconds)


class Actor:
    """A client with one channel, with confirms or with transactions. Each method of a step returns what a
    client sees. `declaring` is the address at which queues are declared, if it is another one.
    """

    def __init__(self, address: Address, declaring: Address | None, transactional: bool) -> None:
        self.delivered: dict[str, list[object]] = {}  # by consumer
        self._address = address
        self._declaring = declaring
        self._transactional = transactional
        self._published = 0
        self._wire = self._dial()
        self._begin()
        for queue in QUEUES:
            self._ask(Queue.Delete(queue=queue), Queue.DeleteOk)
        for exchange in OWN:
            self._ask(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)

    def do(self, step: Step) -> object:
        try:
            return getattr(self, step.name)(**step.given)
        except Refused as refused:
            if refused.channel:
                self._wire.send(method(Channel.CloseOk()))
                self._wire.ask(Channel.Open(), Channel.OpenOk)
                self._begin()
            else:
                self._reopen()
            return refused
        except (EOFError, ConnectionError):
            self._reopen()
            return "the connection ends"

    def end(self) -> None:
        """Closes the connection. The messages that were not settled are on their way to their queues then."""
        self._wire.send(method(Connection.Close(200, "", 0, 0), 0))
        while not isinstance(self._wire.read()[1], Connection.CloseOk):
            pass
        self._wire.close()

    def connect(self) -> None:
        """Closes the connection and opens another one."""
        self.end()
        self._reopen()

    def _reopen(self) -> None:
        self._wire.close()
        settle_down(CLOSED_S)
        self._wire = self._dial()
        self._begin()

    def _dial(self) -> Wire:
        wire = Wire(self._address).open()
        wire.socket.settimeout(ANSWER_S)
        return wire

    def _begin(self) -> None:
        settle_down()
        self._tags: list[int] = []
        self._settled: list[int] = []  # in this transaction
        self._consumers: list[str] = []
        if self._transactional:
            self._ask(Tx.Select(), Tx.SelectOk)
        else:
            self._ask(Confirm.Select(), Confirm.SelectOk)

    # --- frames

    def _read(self) -> base.Frame:
        """Returns the next method that is neither a delivery nor the end of a consumer."""
        while True:
            channel, one = self._wire.read()
            if isinstance(one, Channel.Close | Connection.Close):
                raise Refused(channel, one.reply_code, one.reply_text)
            if isinstance(one, Basic.Deliver):
                self._deliver(one)
            elif isinstance(one, Basic.Cancel):
                self.delivered[one.consumer_tag].append("cancelled")
                self._consumers.remove(one.consumer_tag)
            else:
                assert isinstance(one, base.Frame), one
                return one

    def _deliver(self, one: Basic.Deliver) -> None:
        self.delivered[one.consumer_tag].append(self._message(one, one.delivery_tag))

    def _message(self, one: Any, tag: int) -> object:
        properties, body = self._wire.properties_and_body()
        if tag:
            self._tags.append(tag)
        headers = dict(properties.headers or {})
        deaths = [
            tuple(death[field] for field in ("queue", "reason", "count", "exchange", "routing-keys"))
            for death in headers.pop("x-death", ())
        ]
        left_out = ("x-last-", "x-delivery-", *(("CC",) if deaths else ()))
        shown = {name: value for name, value in headers.items() if not name.startswith(left_out)}
        return (
            *(body, one.redelivered, one.exchange, one.routing_key),
            *(properties.priority, properties.delivery_mode, properties.expiration, shown, deaths),
        )

    def _ask(self, one: base.Frame, kind: type[base.Frame]) -> Any:
        self._wire.send(method(one))
        answer = self._read()
        assert isinstance(answer, kind), answer
        return answer

    def catch_up(self) -> None:
        """Takes what the server has sent so far."""
        settle_down()
        self._ask(Basic.Qos(), Basic.QosOk)

    # --- definitions

    def declare_queue(self, queue: str, arguments: dict[str, Any], passive: bool) -> object:
        asked = Queue.Declare(queue=queue, durable=True, passive=passive, arguments=arguments)
        if self._declaring is None or passive:
            declared = self._ask(asked, Queue.DeclareOk)
            return declared.message_count, declared.consumer_count
        home = Wire(self._declaring).open()
        try:
            declared = home.ask(asked, Queue.DeclareOk)
        except Refused as refused:  # close the channel here, too, as at the other server
            self.connect()
            return refused
        finally:
            home.close()
        return declared.message_count, declared.consumer_count

    def declare_exchange(self, **given: Any) -> None:
        self._ask(Exchange.Declare(durable=True, **given), Exchange.DeclareOk)

    def bind(self, **given: Any) -> None:
        self._ask(Queue.Bind(**given), Queue.BindOk)

    def unbind(self, **given: Any) -> None:
        self._ask(Queue.Unbind(**given), Queue.UnbindOk)

    def bind_exchange(self, **given: Any) -> None:
        self._ask(Exchange.Bind(**given), Exchange.BindOk)

    def unbind_exchange(self, **given: Any) -> None:
        self._ask(Exchange.Unbind(**given), Exchange.UnbindOk)

    def purge(self, queue: str) -> object:
        return self._ask(Queue.Purge(queue=queue), Queue.PurgeOk).message_count

    def delete_queue(self, **given: Any) -> object:
        return self._ask(Queue.Delete(**given), Queue.DeleteOk).message_count

    def delete_exchange(self, **given: Any) -> None:
        self._ask(Exchange.Delete(**given), Exchange.DeleteOk)

    # --- messages

    def publish(self, properties: dict[str, Any], **given: Any) -> object:
        self._published += 1
        body = b"%d" % self._published
        self._wire.send(method(Basic.Publish(**given)) + content(body, **properties))
        if self._transactional:
            self.catch_up()
            return None
        return self._returns()

    def _returns(self) -> object:
        """Returns what comes back, and the name of the method after it: a confirm or the end of a commit."""
        seen: list[object] = []
        while True:
            one = self._read()
            if not isinstance(one, Basic.Return):
                settle_down()
                return *seen, one.name
            seen.append((one.reply_code, one.exchange, one.routing_key, self._wire.content()))

    def commit(self) -> object:
        if not self._transactional:
            return None
        self._settled = []
        self._wire.send(method(Tx.Commit()))
        return self._returns()

    def roll_back(self) -> None:
        if self._transactional:
            self._ask(Tx.Rollback(), Tx.RollbackOk)
            self._tags, self._settled = sorted([*self._tags, *self._settled]), []

    def get(self, queue: str, no_ack: bool) -> object:
        self._wire.send(method(Basic.Get(queue=queue, no_ack=no_ack)))
        one = self._read()
        if isinstance(one, Basic.GetEmpty):
            return "empty"
        assert isinstance(one, Basic.GetOk), one
        return one.message_count, self._message(one, 0 if no_ack else one.delivery_tag)

    def consume(self, queue: str, prefetch: int, no_ack: bool, exclusive: bool) -> None:
        tag = f"c{len(self.delivered)}"
        self.delivered[tag] = []
        self._ask(Basic.Qos(prefetch_count=prefetch), Basic.QosOk)
        consume = Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive)
        self._ask(consume, Basic.ConsumeOk)
        self._consumers.append(tag)

    def cancel(self, which: float) -> None:
        if self._consumers:
            tag = self._consumers.pop(int(which * len(self._consumers)))
            self._ask(Basic.Cancel(tag), Basic.CancelOk)

    def settle(self, which: float, how: str, multiple: bool) -> None:
        if not self._tags:
            return
        at = int(which * len(self._tags))
        tag = self._tags[at]
        multiple = multiple and not how.startswith("reject")
        taken = [other for other in self._tags if (other <= tag if multiple else other == tag)]
        self._tags = [other for other in self._tags if other not in taken]
        self._settled += taken
        frames = {
            "ack": Basic.Ack(tag, multiple),
            "requeue": Basic.Nack(tag, multiple, True),
            "drop": Basic.Nack(tag, multiple, False),
            "reject": Basic.Reject(tag, False),
            "reject and requeue": Basic.Reject(tag, True),
        }
        self._wire.send(method(frames[how]))
        self.catch_up()

    def recover(self) -> None:
        self._tags = []
        self._ask(Basic.Recover(True), Basic.RecoverOk)
        self.catch_up()

    def settle_unknown(self) -> None:
        self._wire.send(method(Basic.Ack(100_000)))
        self.catch_up()


# --- comparing


def seen(outcome: object) -> object:
    """Returns what is compared of an outcome."""
    return ("closed", bool(outcome.channel), outcome.code) if isinstance(outcome, Refused) else outcome


def _compare(
    settings: Run, first: Actor, second: Actor, seed: int, steps: Iterator[Step]
) -> Difference | None:
    for number, step in enumerate(steps, 1):
        described = f"{step.name} {step.given}"
        one, other = first.do(step), second.do(step)
        if seen(one) != seen(other):
            return Difference(seed, number, described, one, other)
        if not _deliveries_are_equal(first, second):
            return Difference(seed, number, described, first.delivered, second.delivered)
        settings.note(number, described, seen(one))
    return None


def _deliveries_are_equal(first: Actor, second: Actor) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while first.delivered or second.delivered:
        first.catch_up()
        second.catch_up()
        if first.delivered == second.delivered:
            break
        if time.monotonic() > deadline:
            return False
    return True


@contextmanager
def other_host() -> Iterator[tuple[Address, Address]]:
    """Gives the addresses of the client, and for declarations."""
    with two_hosts(only("amqp")) as (home, other):
        yield other.address("amqp"), home.address("amqp")


@contextmanager
def reference() -> Iterator[tuple[Address, None]]:
    with rabbitmq() as address:
        yield address, None


def run(settings: Run, seeds: range) -> list[Difference]:
    sequences = Sequences(settings.far)
    peers: AbstractContextManager[tuple[Address, Address | None]]
    peers = other_host() if settings.far else reference()
    with one_host(only("amqp")) as daemon, peers as (there, declaring):

        def compare(seed: int) -> Difference | None:
            transactional = seed % 3 == 0
            first = Actor(daemon.address("amqp"), None, transactional)
            second = Actor(there, declaring, transactional)
            steps = sequences.of(seed, settings.count, transactional)
            difference = _compare(settings, first, second, seed, steps)
            first.end()
            second.end()
            return difference

        return settings.differences(seeds, "other host" if settings.far else "RabbitMQ", compare)


if __name__ == "__main__":
    sys.exit(
        command("tests.foreign.amqp_methods", __doc__, peer="RabbitMQ", steps=200, lacking=missing, run=run)
    )
