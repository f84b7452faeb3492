"""Random sequences for `amqp_methods.py`: valid and invalid methods on a few queues, exchanges and keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

QUEUES: Final = ("q1", "q2", "q3")
OWN: Final = ("x1", "x2", "x3")
KEYS: Final = ("a", "a.b", "a.b.c", "#", "*.b", "", "q1")
DEFINING: Final = {
    *("declare_queue", "bind", "unbind", "delete_queue"),
    *("declare_exchange", "bind_exchange", "unbind_exchange", "delete_exchange"),
}


class Step(NamedTuple):
    """One method: the name of its function in `Actor`, and what that is given."""

    name: str
    given: dict[str, Any]


class Sequences:
    """Makes sequences of steps. `far` leaves out what differs at another host by design."""

    def __init__(self, far: bool) -> None:
        self._exchanges = (*OWN, "amq.direct", "amq.fanout" if far else "amq.topic", "")
        self._overflows = ("drop-head",) if far else ("drop-head", "reject-publish", "reject-publish-dlx")
        self._makers: list[tuple[int, Callable[[random.Random], Step]]] = [
            (13, self._declare_queue),
            (7, self._declare_exchange),
            (10, self._bind),
            (3, self._unbind),
            (2, self._bind_exchange),
            (2, self._unbind_exchange),
            (24, self._publish),
            (15, lambda rng: Step("get", {"queue": rng.choice(QUEUES), "no_ack": rng.random() < 0.3})),
            (14, self._settle),
            (5, self._consume),
            (3, lambda rng: Step("cancel", {"which": rng.random()})),
            (2, lambda rng: Step("purge", {"queue": rng.choice(QUEUES)})),
            (2, self._delete_queue),
            (1, self._delete_exchange),
            (1, lambda rng: Step("recover", {})),
            (1, lambda rng: Step("settle_unknown", {})),
            (1, lambda rng: Step("connect", {})),
            (8, lambda rng: Step("commit", {})),
            (3, lambda rng: Step("roll_back", {})),
        ]
        self._weights = [weight for weight, _ in self._makers]

    def of(self, seed: int, count: int, transactional: bool) -> Iterator[Step]:
        rng = random.Random(seed)
        for _ in range(count):
            ((_, make),) = rng.choices(self._makers, self._weights)
            step = make(rng)
            if transactional and step.name in DEFINING:
                yield Step("commit", {})
            yield step

    def _declare_queue(self, rng: random.Random) -> Step:
        arguments: dict[str, object] = {}
        passive = rng.random() < 0.25
        for name, chance, values in (
            ("x-max-length", 0.2, (1, 2)),
            ("x-overflow", 0.15, self._overflows),
            ("x-dead-letter-exchange", 0.3, ("", "x1", "x2", "none")),
            ("x-dead-letter-routing-key", 0.2, ("q1", "a", "q2")),
            ("x-max-priority", 0.1, (2, 5)),
            ("x-message-ttl", 0.05, (0, 1_000_000)),
            ("x-odd", 0.02, (1,)),
            ("x-expires", 0.01, (0, -1, "soon")),
        ):
            if not passive and rng.random() < chance:
                arguments[name] = rng.choice(values)
        return Step(
            "declare_queue", {"queue": rng.choice(QUEUES), "arguments": arguments, "passive": passive}
        )

    def _declare_exchange(self, rng: random.Random) -> Step:
        other = {"alternate-exchange": rng.choice(("x1", "x2", "none", "amq.fanout"))}
        return Step(
            "declare_exchange",
            {
                "exchange": rng.choice(self._exchanges),
                "exchange_type": rng.choice(("direct", "direct", "topic", "topic", "fanout", "headers")),
                "passive": rng.random() < 0.1,
                "auto_delete": rng.random() < 0.1,
                "internal": rng.random() < 0.1,
                "arguments": other if rng.random() < 0.3 else {},
            },
        )

    def _bind(self, rng: random.Random) -> Step:
        matched = {"x-match": rng.choice(("all", "any")), "h": rng.choice((1, "v"))}
        return Step(
            "bind",
            {
                "queue": rng.choice(QUEUES),
                "exchange": rng.choice(self._exchanges),
                "routing_key": rng.choice(KEYS),
                "arguments": matched if rng.random() < 0.3 else {},
            },
        )

    def _unbind(self, rng: random.Random) -> Step:
        return Step(
            "unbind",
            {
                "queue": rng.choice(QUEUES),
                "exchange": rng.choice(self._exchanges),
                "routing_key": rng.choice(KEYS),
            },
        )

    def _bind_exchange(self, rng: random.Random) -> Step:
        return Step("bind_exchange", self._two_exchanges(rng))

    def _unbind_exchange(self, rng: random.Random) -> Step:
        return Step("unbind_exchange", self._two_exchanges(rng))

    def _two_exchanges(self, rng: random.Random) -> dict[str, Any]:
        return {
            "destination": rng.choice(self._exchanges),
            "source": rng.choice(self._exchanges),
            "routing_key": rng.choice(KEYS),
        }

    def _publish(self, rng: random.Random) -> Step:
        properties: dict[str, object] = {}
        headers: dict[str, object] = {}
        if rng.random() < 0.5:
            properties["delivery_mode"] = 2
        if rng.random() < 0.2:
            properties["priority"] = rng.randrange(6)
        if rng.random() < 0.3:
            headers["h"] = rng.choice((1, "v"))
        if rng.random() < 0.1:
            headers[rng.choice(("CC", "BCC"))] = [rng.choice(KEYS)]
        if rng.random() < 0.02:
            headers["CC"] = "not a list"
        if rng.random() < 0.03:
            properties["expiration"] = rng.choice(("soon", "-1", "1000000"))
        if rng.random() < 0.02:
            properties["user_id"] = rng.choice(("guest", "other"))
        if headers:
            properties["headers"] = headers
        return Step(
            "publish",
            {
                "exchange": rng.choice(self._exchanges),
                "routing_key": rng.choice((*KEYS, *QUEUES, *QUEUES)),
                "mandatory": rng.random() < 0.5,
                "properties": properties,
            },
        )

    def _settle(self, rng: random.Random) -> Step:
        return Step(
            "settle",
            {
                "which": rng.random(),
                "how": rng.choice(("ack", "requeue", "drop", "reject", "reject and requeue")),
                "multiple": rng.random() < 0.2,
            },
        )

    def _consume(self, rng: random.Random) -> Step:
        return Step(
            "consume",
            {
                "queue": rng.choice(QUEUES),
                "prefetch": rng.choice((0, 1, 1, 2)),
                "no_ack": rng.random() < 0.3,
                "exclusive": rng.random() < 0.1,
            },
        )

    def _delete_queue(self, rng: random.Random) -> Step:
        return Step(
            "delete_queue",
            {"queue": rng.choice(QUEUES), "if_unused": rng.random() < 0.3, "if_empty": rng.random() < 0.3},
        )

    def _delete_exchange(self, rng: random.Random) -> Step:
        return Step(
            "delete_exchange", {"exchange": rng.choice(self._exchanges), "if_unused": rng.random() < 0.3}
        )
