"""The VNFs' actions and results: subscriptions, last values, and a check for duplicates and stray updates."""

from __future__ import annotations

from bisect import insort

from treecast.middleware.wire.stare_signals import Update

Pair = tuple[int, int]  # state, publishing VNF
_MOST_PROBLEMS = 20


class Got:
    """The updates of a pair that a subscriber has got since it subscribed: from `first` up to but excluding
    `end`."""

    __slots__ = ("count", "end", "first", "value")

    def __init__(self, number: int) -> None:
        self.first = self.end = number
        self.count = 0
        self.value = b""


class Subscription:
    """A VNF's updates of a state, by publisher. `answered`: each publisher's number when switch and replica
    controller had confirmed the subscription; every later update must come. None until then."""

    __slots__ = ("answered", "got")

    def __init__(self) -> None:
        self.got: dict[int, Got] = {}
        self.answered: dict[int, int] | None = None


class Ledger:
    """All VNFs of a run, by id. `early`: updates that a subscription missed before it was confirmed."""

    def __init__(self) -> None:
        self.subscribers: dict[int, list[int]] = {}  # by state, in order
        self.last: dict[Pair, tuple[int, bytes]] = {}  # number and value
        self.got: dict[tuple[int, int], Subscription] = {}  # by (subscriber, state)
        self.delivered = 0
        self.settled = 0  # delivered to VNFs that have left since
        self.early = 0
        self.problems: list[str] = []

    def joined(self, vnf: int, state: int) -> None:
        insort(self.subscribers.setdefault(state, []), vnf)
        self.got[vnf, state] = Subscription()

    def answered(self, vnf: int, state: int, publishers: list[int]) -> None:
        """Notes that the subscription is confirmed."""
        ends = ((one, self.last.get((state, one))) for one in publishers)
        self.got[vnf, state].answered = {one: last[0] + 1 for one, last in ends if last is not None}

    def left(self, vnf: int, state: int) -> None:
        self.subscribers[state].remove(vnf)
        self.settled += sum(one.count for one in self.got.pop((vnf, state)).got.values())

    def published(self, vnf: int, state: int, number: int, value: bytes) -> None:
        self.last[state, vnf] = (number, value)

    def deliver(self, vnf: int, update: Update) -> None:
        """Notes that a VNF got an update."""
        self.delivered += 1
        mine = self.got.get((vnf, update.state))
        if mine is None:
            self._problem(f"VNF {vnf} gets an update of state {update.state}, which it does not subscribe to")
            return
        got = mine.got.get(update.vnf)
        if got is None:
            got = mine.got[update.vnf] = Got(update.number)
            self._begins(vnf, mine, update)
        if update.vnf == vnf:
            self._problem(f"VNF {vnf} gets its own update of state {update.state}")
        if update.number < got.end:
            self._problem(f"VNF {vnf} gets {_name(update)} twice or too late: it had all before {got.end}")
        if update.number > got.end:
            self._skipped(vnf, mine, got.end, update)
        got.end = update.number + 1
        got.count += 1
        got.value = update.value

    def _begins(self, vnf: int, mine: Subscription, update: Update) -> None:
        """Notes the first update of a publisher."""
        if mine.answered is not None and update.number > mine.answered.get(update.vnf, 0):
            self._problem(f"VNF {vnf} misses what came before {_name(update)}, its first")

    def _skipped(self, vnf: int, mine: Subscription, first: int, update: Update) -> None:
        """Notes that updates from `first` to this one were skipped and will not come."""
        must = update.number if mine.answered is None else mine.answered.get(update.vnf, 0)
        if update.number > max(first, must):
            self._problem(f"VNF {vnf} misses what came before {_name(update)}, from {max(first, must)} on")
        self.early += update.number - first

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)

    # --- the end

    def missing(self, most: int = _MOST_PROBLEMS) -> list[str]:
        """Returns the subscribers that lack the last value of one of their states."""
        found = []
        for (state, publisher), (number, value) in self.last.items():
            for vnf in self.subscribers.get(state, ()):
                if vnf == publisher:
                    continue
                got = self.got[vnf, state].got.get(publisher)
                if got is None or got.end != number + 1 or got.value != value:
                    has = "nothing" if got is None else f"all before {got.end}"
                    found.append(
                        f"VNF {vnf} has {has} of state {state}; VNF {publisher} has published {number}"
                    )
                    if len(found) >= most:
                        return found
        return found

    def account(self) -> dict[str, int]:
        """Accounts for updates. Addressed are those from a subscriber's first to the last published; for a
        VNF that has left, those it got."""
        addressed = delivered = skipped = 0
        for (_, state), mine in self.got.items():
            for publisher, got in mine.got.items():
                addressed += self.last[state, publisher][0] + 1 - got.first
                delivered += got.count
                skipped += got.end - got.first - got.count
        return {
            "addressed": addressed + self.settled,
            "delivered": delivered + self.settled,
            "missed": skipped,
            "outstanding": addressed - delivered - skipped,
        }


def _name(update: Update) -> str:
    return f"update {update.number} of VNF {update.vnf} for state {update.state}"
