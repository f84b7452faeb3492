"""The agents' demo: `python -m examples.agents`, or `make demo-agents`. It needs root and RabbitMQ.

1. Three sites start, each a host in a network namespace with a RabbitMQ server of its own and an agent beside
it: north, where an application publishes, and south and west, where applications consume. No server knows
another. 2. While messages are published, west is cut off for ten seconds. 3. South's server is killed with
SIGKILL and started again. 4. What the applications got is compared with what north's server has confirmed.

Exit code 0 only if nothing is missing and all agents have settled everything.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.peers.rabbitmq import missing
from rich.console import Console
from rich.table import Table

from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab, LabError

from .site import CENTER, Amiss, Coordinator, Site, until

RATE = 250.0  # messages a second
CUT = 10.0  # seconds
NAMES = ("north", "south", "west")


@dataclass
class Results:
    """`confirmed`: by north's server. By consuming site: how many messages its application got, how many of
    them twice, and how many are missing. `agents`: the agents' own counts."""

    confirmed: int = 0
    got: dict[str, int] = field(default_factory=dict)
    twice: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    agents: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        settled = all(one["not settled"] == 0 for one in self.agents.values())
        return self.confirmed > 0 and len(self.got) == 2 and not any(self.missing.values()) and settled


def lab_of() -> str:
    hosts = (CENTER, *NAMES)
    links = [f'[[links]]\nbetween = ["{host}", "wan"]\ndelay = "5ms"' for host in hosts]
    return "\n".join([*(f"[hosts.{host}]" for host in hosts), "[bridges.wan]", *links])


def play(lab: Lab, folder: Path, say: Callable[[str], None]) -> Results:
    """Plays the demo. Raises Amiss."""
    sites = {name: Site(lab, name, folder, consumes=name != "north") for name in NAMES}
    for site in sites.values():
        site.start_mapper()
        site.start_server()
    Coordinator(lab, folder).start()
    for site in sites.values():
        site.await_server()
    say("three RabbitMQ servers serve, and know nothing of one another")
    for site in sites.values():
        site.start_agent()
    until(lambda: len(sites["north"].status().get("sites", {})) == 2, "north does not hear what others want")
    until(lambda: all(site.status().get("serving") for site in sites.values()), "an agent does not serve")
    for site in sites.values():
        if site.consumes:
            site.start_consumer()
    say("an agent is beside each; applications consume at south and west")
    publisher = sites["north"].start_publisher(RATE, folder / "confirmed")
    time.sleep(3)
    sites["west"].cut_off()
    say("west is cut off")
    time.sleep(CUT)
    sites["west"].reconnect()
    say("west is back; south's server is killed")
    sites["south"].kill_server()
    sites["south"].start_server()
    sites["south"].await_server()
    say("south's server is back")
    time.sleep(2)
    publisher.terminate()
    if publisher.wait(30) != 0:
        raise Amiss("the publisher has failed")
    return settle(sites, folder, say)


def settle(sites: dict[str, Site], folder: Path, say: Callable[[str], None]) -> Results:
    """Waits until all has arrived, and compares."""
    confirmed = {int(line) for line in (folder / "confirmed").read_text().split()}
    results = Results(confirmed=len(confirmed))
    consuming = [site for site in sites.values() if site.consumes]

    def arrived() -> bool:
        return all(confirmed <= set(site.consumed()) for site in consuming)

    say("all is published; what is on its way is waited for")
    try:
        until(arrived, "something is missing", 60)
    except Amiss:
        pass
    for site in consuming:
        numbers = site.consumed()
        results.got[site.name] = len(set(numbers))
        results.twice[site.name] = len(numbers) - len(set(numbers))
        results.missing[site.name] = len(confirmed - set(numbers))
    deadline = time.monotonic() + 20
    while True:
        results.agents = {site.name: counts_of(site) for site in sites.values()}
        if all(one["not settled"] == 0 for one in results.agents.values()) or time.monotonic() > deadline:
            return results
        time.sleep(0.5)


def counts_of(site: Site) -> dict[str, int]:
    found = site.status()
    counters = found.get("counters", {})
    names = {"taken": "taken", "sent": "sent", "received": "received", "confirmed": "published"}
    shown = {name: int(counters.get(key, 0)) for name, key in names.items()}
    unsettled = int(found.get("lag", 1)) + int(found.get("owed", 1))
    return {**shown, "published again": int(counters.get("again", 0)), "not settled": unsettled}


def table(results: Results) -> Table:
    shown = Table(title="nothing is missing" if results.good else "[red]something is missing")
    shown.add_column("what")
    shown.add_column("messages", justify="right")
    shown.add_row("confirmed by north's server", f"{results.confirmed:,}")
    for name, count in results.got.items():
        shown.add_row(f"consumed at {name}", f"{count:,}")
        shown.add_row("  of these twice, not confirmed before the kill", f"{results.twice[name]:,}")
        style = "[red]" if results.missing[name] else "[green]"
        shown.add_row("  missing", f"{style}{results.missing[name]:,}")
    for name, counts in results.agents.items():
        shown.add_section()
        for what, count in counts.items():
            shown.add_row(f"agent of {name}: {what}", f"{count:,}")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.agents", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    parser.add_argument("--keep", metavar="DIR", help="where logs and data stay")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    if reason := missing():
        console.print(f"[red]{reason}")
        return 1
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"- {time.monotonic() - began:5.1f} s: {text}")

    with tempfile.TemporaryDirectory(prefix="treecast-agents-") as scratch:
        folder = Path(options.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with Lab.up(parse(lab_of(), "the demo's lab")) as lab:
                results = play(lab, folder, say)
        except (Amiss, LabError) as error:
            console.print(f"[red]{error}")
            return 1
    if options.json:
        print(json.dumps(asdict(results) | {"good": results.good}))
    else:
        console.print(table(results))
    return 0 if results.good else 1


if __name__ == "__main__":
    sys.exit(main())
