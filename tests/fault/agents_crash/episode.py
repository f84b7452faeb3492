"""One life of two sites: load, a fault at a random moment, and the account, repeated.

north publishes with confirms, south consumes with acknowledgements, both with pika. A fault is a kill -9 of
an agent, of a server or of the coordinator, each of which is started again, or a link that is down for a
while. Then the load ends, and everything that north's server has confirmed has to be consumed at south.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from examples.agents.site import EXCHANGE, USER, Amiss, Coordinator, Site

from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab

FAULTS = (
    *("agent south", "server north", "coordinator", "cut south"),
    *("agent north", "server south", "cut north"),
)
BEFORE_S = 3.0  # of load before the fault, at most
AFTER_S = 1.0
ATTEMPTS = 3
OVERLAP = 0.2  # the share of rounds in which a second fault meets the first one
CENTER = "center"
HERE = Path(__file__).resolve().parent


def lab_of() -> str:
    hosts = (CENTER, "north", "south")
    links = [f'[[links]]\nbetween = ["{host}", "wan"]' for host in hosts]
    return "\n".join([*(f"[hosts.{host}]" for host in hosts), "[bridges.wan]", *links])


class Episode:
    """`problems`: violations found. `counts`: messages confirmed and consumed, and consumed again; faults by
    kind. `cut`: seconds for which a link is down."""

    fsync = "interval"

    def __init__(
        self, folder: Path, seed: int, number: int, python: str, patience: float, *, cut: float = 60.0
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.problems: list[str] = []
        self.counts = {"confirmed": 0, "consumed": 0, "again": 0, **dict.fromkeys(FAULTS, 0)}
        self.kills = 0
        self.log = ""
        self._folder = folder
        self._seed = seed
        self._python = python
        self._patience = patience
        self._cut = cut
        self._stack = contextlib.ExitStack()
        self._next = 0  # the number of the next message
        self.sites: dict[str, Site] = {}

    def begin(self) -> None:
        self._lab = self._stack.enter_context(Lab.up(parse(lab_of(), "the run's lab")))
        self._coordinator = Coordinator(self._lab, self._folder)
        self._coordinator.start()
        self.sites = {
            name: Site(self._lab, name, self._folder, consumes=name == "south") for name in ("north", "south")
        }
        for site in self.sites.values():
            site.start_mapper()
            site.start_server()
        for site in self.sites.values():
            site.await_server()
            site.start_agent()
        self.sites["south"].start_consumer()
        north = self.sites["north"]
        self._wait(lambda: len(north.status().get("sites", {})) == 1, "north does not hear what south wants")

    def cycle(self, number: int, *, damage: bool = False) -> None:
        """One fault under load. `damage` removes a confirmed message from the account, to prove that the
        check notices it."""
        rng = random.Random(f"{self._seed}-{number}")
        publisher = self._publish()
        time.sleep(rng.uniform(0.1, BEFORE_S))
        faults = [FAULTS[number % len(FAULTS)]]
        if rng.random() < OVERLAP:
            faults.append(rng.choice(FAULTS))
        for fault in dict.fromkeys(faults):
            self._break(fault, rng)
        time.sleep(AFTER_S)
        publisher.send_signal(signal.SIGTERM)
        publisher.wait(self._patience)
        confirmed = self._confirmed()
        if damage:
            confirmed.add(-1)
        self._settle(confirmed)

    # --- faults

    def _break(self, fault: str, rng: random.Random) -> None:
        self.counts[fault] += 1
        what, _, name = fault.partition(" ")
        if what == "coordinator":
            self._coordinator.kill()
            time.sleep(rng.uniform(0, 2))
            self._coordinator.start()
        elif what == "agent":
            self.sites[name].kill_agent()
            time.sleep(rng.uniform(0, 2))
            self._start_agent(name)
        elif what == "server":
            self.sites[name].kill_server()
            time.sleep(rng.uniform(0, 2))
            self.sites[name].start_server()
            self.sites[name].await_server()
        else:
            self.sites[name].cut_off()
            time.sleep(self._cut)
            self.sites[name].reconnect()
        self.kills += 1

    def _start_agent(self, name: str) -> None:
        """Starts an agent as a service manager does: again, if the first attempts are refused."""
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(Amiss):
                return self.sites[name].start_agent()
        return self.sites[name].start_agent()

    # --- load and account

    def _publish(self):
        words = (EXCHANGE, str(self._next), str(self._folder / "confirmed"), USER)
        return self._lab.start("north", self._python, str(HERE / "publish.py"), *words)

    def _confirmed(self) -> set[int]:
        """Returns all numbers that were confirmed so far."""
        found = set()
        for line in (self._folder / "confirmed").read_text().splitlines():
            if line.startswith("end "):
                self._next = int(line.removeprefix("end "))
            elif line:
                found.add(int(line))
        self._next = max([self._next, *[one + 1 for one in found]])
        return found

    def _settle(self, confirmed: set[int]) -> None:
        """Waits until all is consumed and settled, and takes the account."""
        south = self.sites["south"]
        self._wait(lambda: confirmed <= set(south.consumed()), "south has not consumed all")
        self._wait(self._settled, "an agent has not settled all")
        consumed = south.consumed()
        missing = confirmed - set(consumed)
        if missing:
            self.problems.append(f"{len(missing)} confirmed messages are lost: {sorted(missing)[:5]}")
        if strange := [one for one in set(consumed) if not 0 <= one < self._next]:
            self.problems.append(f"messages that nobody published: {strange[:5]}")
        self.counts["confirmed"], self.counts["consumed"] = len(confirmed), len(set(consumed))
        self.counts["again"] = len(consumed) - len(set(consumed))

    def _settled(self) -> bool:
        found = [site.status() for site in self.sites.values()]
        return all(one.get("lag", 1) == 0 and one.get("owed", 1) == 0 for one in found)

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        """Waits while messages still come; notes a problem if none have come for long."""
        seen, deadline = -1, time.monotonic() + self._patience
        while not done():
            if self.sites and (now := len(self.sites["south"].consumed())) != seen:
                seen, deadline = now, time.monotonic() + self._patience
            if time.monotonic() > deadline:
                self.problems.append(f"{what} within {self._patience:.0f} s")
                return
            time.sleep(0.2)

    def end(self) -> None:
        self._stack.close()
        logs = sorted(self._folder.glob("*.log"))
        self.log = "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-800:]}" for log in logs)
        if any("Traceback" in log.read_text(errors="replace") for log in self._folder.glob("agent-*.log")):
            self.problems.append("an agent has logged a trace")
