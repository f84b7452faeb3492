"""One run: operations over a lossy emulated network, then a quiet period, then the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from treecast.middleware.control.replicas.settings import ReplicaSettings
from treecast.middleware.dataplane.emulator import LinkSettings
from treecast.middleware.evaluation.stare.network import StareNetwork
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import SubState

from .ledger import Ledger
from .plan import Operation, Options, network_of, operations, publishers_of, states_of

DELAY = 0.001
LOOK_EVERY = 5.0  # simulated seconds between checks for rest
AT_ONCE = 0.001  # operations within this time count as one moment
REFRESHES = 3
LONGEST = 1.5  # a refresh comes after 1 to 1.5 times its setting
CONFIRM_EVERY = 0.05  # seconds between checks for confirmed subscriptions
_MOST_VIEWS = 100  # differences
Say = Callable[[str, float], None]  # (current activity, its progress)


@dataclass
class Result:
    """`rows`: measurements; `problems`: violations; `views`: what hosts and switches know of states with
    wrong switch entries."""

    rows: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    views: list[dict[str, Any]] = field(default_factory=list)


class Run:
    """One run; call `go` once."""

    def __init__(self, options: Options, say: Say = lambda what, share: None) -> None:
        self.options = options
        self.ledger = Ledger()
        self._say = say
        bad = LinkSettings(
            delay=DELAY, loss=options.loss, duplicate=options.duplicate, reorder=options.reorder, late=0.02
        )
        self.net = StareNetwork(
            network_of(options),
            options.design,
            options.seed,
            link=bad,
            settings=StareSettings(refresh=options.refresh),
            replicas=ReplicaSettings(),
            signal_loss=options.loss,
        )
        self.vnfs = [self._open(number) for number in range(options.vnfs)]
        chosen = publishers_of(options)
        self._publishers = {state: [self.vnfs[one] for one in some] for state, some in chosen.items()}
        self._waiting: dict[tuple[int, int], None] = {}  # subscriptions that are not confirmed
        self._before: dict[str, int] = {}  # wrong switch entries before hosts refreshed

    def _open(self, number: int) -> int:
        hosts = self.net.network.hosts
        ids: list[int] = []
        vnf = self.net.open(hosts[number % len(hosts)], lambda update: self.ledger.deliver(ids[0], update))
        ids.append(vnf)
        return vnf

    # --- operations

    def play(self) -> None:
        """Performs all operations at the plan's rate."""
        per_moment = max(round(self.options.rate * AT_ONCE), 1)
        pause = per_moment / self.options.rate
        total = round((2 + self.options.operations) * self.options.states)
        confirm = 0.0
        for done, operation in enumerate(operations(self.options)):
            self._do(operation)
            if done % per_moment == per_moment - 1:
                self.net.run(pause)
                self._say("operations", done / total)
                if self.net.now >= confirm:
                    confirm = self.net.now + CONFIRM_EVERY
                    self._confirm()

    def _confirm(self) -> None:
        """Confirms subscriptions as a daemon answers its VNF: once the switch and the replica controller know
        them."""
        for vnf, state in list(self._waiting):
            node = self.net.node_of(vnf)
            if node.announced(state) and node.subscription(state) is SubState.REGISTERED:
                del self._waiting[vnf, state]
                self.ledger.answered(vnf, state, self._publishers[state])

    def _do(self, one: Operation) -> None:
        ledger, net = self.ledger, self.net
        there = ledger.subscribers.get(one.state, [])
        if one.what == "publish":
            among = self._publishers[one.state]
            vnf = among[int(one.which * len(among))]
            ledger.published(vnf, one.state, net.publish(vnf, one.state, one.value), one.value)
        elif one.what == "join":
            vnf = self.vnfs[int(one.which * len(self.vnfs))]
            if vnf not in there:
                ledger.joined(vnf, one.state)
                net.subscribe(vnf, one.state)
                self._waiting[vnf, one.state] = None
        elif there:
            vnf = there[int(one.which * len(there))]
            net.unsubscribe(vnf, one.state)
            ledger.left(vnf, one.state)
            self._waiting.pop((vnf, one.state), None)

    # --- rest

    def rest(self) -> float:
        """Waits until all updates have arrived; returns the simulated seconds it took.

        In the register design every host refreshes three times first; what stays then stays for long.
        """
        begun, limit = self.net.now, self.options.settle
        least = 0.0
        if self.options.design == "register":
            least = REFRESHES * LONGEST * self.options.refresh
            self._before = _bits(self.differences())
        while (took := self.net.now - begun) < limit and (took < least or not self._at_rest()):
            self.net.run(LOOK_EVERY)
            self._confirm()
            self._say("coming to rest", took / limit)
        return self.net.now - begun

    def _at_rest(self) -> bool:
        """Returns whether nothing is pending except refreshes, which never end."""
        switches = [one.cpu.controller for one in self.net.switches.values() if one.cpu is not None]
        if self.ledger.missing(1) or not all(one.settled for one in switches):
            return False
        return self._told() and (self.options.design == "register" or not self.differences())

    def _told(self) -> bool:
        """Returns whether the replica controller has all published updates."""
        spans = (self.net.controller.span(pair) for pair in self.ledger.last)
        ends = (number + 1 for number, _ in self.ledger.last.values())
        return all(span is not None and span[1] == end for span, end in zip(spans, ends, strict=True))

    def differences(self) -> list[tuple[int, int, int, int]]:
        return self.net.differences(states_of(self.options))

    # --- results

    def result(self, rested: float) -> Result:
        self._say("checking", 1.0)
        self.net.check_invariants()
        account = self.ledger.account()
        differences = self.differences()
        problems = [*self.ledger.problems, *self.ledger.missing()]
        if self.options.design == "embedded":
            problems += [_difference(*one) for one in differences[:20]]
        if account["outstanding"]:
            problems.append(f"the account does not close: {account}")
        problems += self._replica_problems()
        counted = sum(host.node.counters.delivered for host in self.net.hosts.values())
        if counted != self.ledger.delivered:
            problems.append(f"hosts counted {counted} deliveries, VNFs got {self.ledger.delivered}")
        before = {f"{name} before refreshes": count for name, count in self._before.items()}
        views = [self.view(state) for state in sorted({state for _, state, *_ in differences[:_MOST_VIEWS]})]
        return Result({**self._rows(rested), **account, **before, **_bits(differences)}, problems, views)

    def view(self, state: int) -> dict[str, Any]:
        """Returns what each host and switch knows of a state; ports of switches in binary."""
        hosts = {node: host.node.subscription(state) for node, host in self.net.hosts.items()}
        switches = {}
        for node, one in self.net.switches.items():
            switches[node] = {"held": f"{one.held(state):b}"}
            if one.cpu is not None:
                asked = one.cpu.controller.asked(state).items()
                switches[node]["controller"] = f"{one.cpu.controller.ports(state):b}"
                switches[node]["asked"] = ", ".join(f"{port} {how.value}" for port, how in asked)
        return {
            "state": state,
            "hosts": {node: how.value for node, how in hosts.items() if how is not None},
            "switches": switches,
        }

    def _replica_problems(self) -> list[str]:
        controller = self.net.controller
        counters = controller.counters
        gone = counters.truncated + counters.evicted
        problems = [] if self._told() else ["the replica controller lacks updates"]
        if counters.updates != gone + controller.updates:
            problems.append(f"{counters.updates} updates in the backlog, {gone} + {controller.updates} found")
        return problems

    def _rows(self, rested: float) -> dict[str, Any]:
        nodes = [host.node.counters for host in self.net.hosts.values()]
        ways = self.net.emulator.ways
        stats = [one.switch.stats() for one in self.net.switches.values()]
        held = [one.all_held() for one in self.net.switches.values()]
        return {
            "simulated seconds": round(self.net.now, 3),
            "of them to come to rest": round(rested, 3),
            "subscriptions at the end": sum(map(len, self.ledger.subscribers.values())),
            "states held by switches": sum(map(len, held)),
            "bits held by switches": sum(ports.bit_count() for one in held for ports in one.values()),
            "published": sum(one.published for one in nodes),
            "recovered": sum(one.recovered for one in nodes),
            "missed by unconfirmed subscriptions": self.ledger.early,
            "requests of hosts": sum(one.registers + one.removes for one in nodes),
            "publishes without a subscriber at the host": sum(
                one.refused.get("NOT_SUBSCRIBED", 0) for one in nodes
            ),
            "packets on links": sum(way.packets for way in ways),
            "lost on links": sum(way.lost for way in ways),
            "doubled on links": sum(way.doubled for way in ways),
            "passes of switches": sum(one.ingress_passes for one in stats),
            "signals": self.net.signals.sent,
            "signals lost": self.net.signals.lost,
            "queries": self.net.controller.counters.queries,
        }


def _difference(switch: int, state: int, held: int, implied: int) -> str:
    return f"switch {switch} holds {held:b} for state {state}, subscriptions imply {implied:b}"


def _bits(differences: list[tuple[int, int, int, int]]) -> dict[str, int]:
    """Counts the entries that the register design leaves behind, in ports of switches."""
    return {
        "stale bits": sum((held & ~implied).bit_count() for _, _, held, implied in differences),
        "missing bits": sum((implied & ~held).bit_count() for _, _, held, implied in differences),
    }


def run(options: Options, say: Say = lambda what, share: None) -> Result:
    """Performs a whole run."""
    one = Run(options, say)
    one.play()
    return one.result(one.rest())


__all__ = ["Options", "Result", "Run", "run"]
