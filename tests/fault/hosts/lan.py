"""A LAN as offices have it: ports that forget groups, frames of three sizes, links and addresses that change.

    forget    a port forgets its groups for a while: one host gets no multicast, and all else
    quiet     the switch has no querier, and forgets all groups for a while
    mtu       a port takes packets of at most 1,280 bytes, and drops longer ones without a word
    jumbo     a host and its port have an MTU of 9,000, from the start on
    link      a link goes down, and comes up again
    address   a host's address is another one, and later the old one again
    suspend   a host is suspended, and resumed

Events come in a seeded order, to hosts chosen at random, under the load of three faces. An event begins; it
lasts; it ends. Both times the hosts have 5 s; then 99 % of the records sent have to reach all hosts that can
be reached within 100 ms, beside what the machine adds: all hosts share it, and `pulse` measures how late it
finishes a millisecond of work. In the end nothing is lost, the accounts are closed, and no origin has
sent more than 1.3 times the bytes that it was to send: payload once, or once to each host by unicast, and
what hosts have lost or missed.

A run is a series of sites of a few events each. After each site the progress is kept: the same command goes
on from there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .ends import account, compare, count
from .latency import Sample, Window, percentile, within
from .ledger import merged
from .old_copy_load import Messages
from .result import Options, Result
from .site import Consuming, Producing, Site, wait_for, workers

PARTITIONS = 2
READ_S = 60.0
GROUPED_S = 90.0  # a host that was not reached is probed again after 30 s
PATIENCE_S = 180.0
BACK_S, WINDOW_S = 5.0, 4.0  # to recover; then latencies are measured
SEGMENTS = 3  # of a record: its packets have full length
MOST_MS = 100.0
STEPS = 6  # processes that work one after the other between a producer and a reader at another host
MOST_BYTES = 1.3
_FEW_BYTES = 1 << 20  # an origin that sent less says nothing
SITE_EVENTS = 10  # of one site
_SECONDS_OF_EVENT = 2 * (BACK_S + WINDOW_S)
_RESENT = ("data", "repair", "replay")
_SMALL, _LARGE = 1280, 9000
_TABLE = "add table bridge {0}; add chain bridge {0} f {{ type filter hook forward priority 0; }}; "
_DROP = "add rule bridge {0} f {1}ip daddr 224.0.0.0/4 udp dport != 0 drop; "
_DROP_6 = "add rule bridge {0} f {1}ip6 daddr ff00::/8 udp dport != 0 drop"


@dataclass(frozen=True)
class Event:
    """`out`: whether the host cannot be reached while it lasts. `whole`: the event is of no single host.
    `grouped`: it means nothing unless streams use multicast."""

    begin: Callable[[Lan, str], None]
    end: Callable[[Lan, str], None]
    out: bool = False
    whole: bool = False
    grouped: bool = False


class Lan:
    """Changes the network of a site."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._moves = 0

    def port(self, host: str) -> str:
        """Returns the switch's port of a host."""
        return self.site.lab.end(host, "lan", "lan").interface

    def switch(self, *words: str) -> None:
        self.site.lab.run("lan", *words)

    def forget(self, host: str) -> None:
        self._drop(f"oifname {self.port(host)} ")

    def go_quiet(self, host: str) -> None:
        self._drop("")

    def _drop(self, where: str) -> None:
        self.switch("nft", (_TABLE + _DROP + _DROP_6).format("treecast", where))

    def remember(self, host: str) -> None:
        self.switch("nft", "delete table bridge treecast")

    def shrink(self, host: str) -> None:
        self.switch("ip", "link", "set", self.port(host), "mtu", str(_SMALL))

    def widen(self, host: str) -> None:
        mtu = _LARGE if host == self.site.large else 1500
        self.switch("ip", "link", "set", self.port(host), "mtu", str(mtu))

    def down(self, host: str) -> None:
        self.site.lab.run(host, "ip", "link", "set", "eth0", "down")

    def up(self, host: str) -> None:
        """The kernel has dropped the addresses of IPv6, which a network manager brings back."""
        self.site.lab.run(host, "ip", "link", "set", "eth0", "up")

    def readdress(self, host: str) -> None:
        own = self.site.lab.interface(host).ipv4
        self._moves += 1
        new = ipaddress.ip_interface(
            f"{own.network.broadcast_address - self._moves - 1}/{own.network.prefixlen}"
        )
        self._change(host, str(own), str(new))

    def readdress_back(self, host: str) -> None:
        own = self.site.lab.interface(host).ipv4
        listed = self.site.lab.run(host, "ip", "-4", "-o", "addr", "show", "dev", "eth0").stdout
        self._change(host, listed.split()[3], str(own))

    def _change(self, host: str, old: str, new: str) -> None:
        """As a DHCP client does it when its lease is another one."""
        self.site.lab.run(host, "ip", "addr", "del", old, "dev", "eth0")
        self.site.lab.run(host, "ip", "addr", "add", new, "dev", "eth0")

    def suspend(self, host: str) -> None:
        self.site.daemons[host].process.send_signal(signal.SIGSTOP)

    def resume(self, host: str) -> None:
        self.site.daemons[host].process.send_signal(signal.SIGCONT)


EVENTS: dict[str, Event] = {
    "forget": Event(Lan.forget, Lan.remember, grouped=True),
    "quiet": Event(Lan.go_quiet, Lan.remember, whole=True, grouped=True),
    "mtu": Event(Lan.shrink, Lan.widen),
    "jumbo": Event(lambda lan, host: None, lambda lan, host: None),  # of the site itself
    "link": Event(Lan.down, Lan.up, out=True),
    "address": Event(Lan.readdress, Lan.readdress_back),
    "suspend": Event(Lan.suspend, Lan.resume, out=True),
}


class LanSite(Site):
    """`large`: the host with long frames; empty: none."""

    def __init__(self, folder: Path, options: Options, seed: int, large: str) -> None:
        self.large = large
        mtus = {large: _LARGE} if large else None
        faces = {"mqtt": True, "amqp": True}
        super().__init__(
            folder, options.hosts, relayed=(), seed=seed, python=options.python, mtus=mtus, **faces
        )


class Episode:
    """Some events at one site, under load."""

    def __init__(self, site: LanSite, options: Options, folder: Path, rng: random.Random) -> None:
        self.site = site
        self.options = options
        self.result = Result()
        self.lan = Lan(site)
        self.happened: dict[str, int] = {}
        self.late: list[str] = []
        self.bytes: dict[str, list[int]] = {}  # sent, and to be sent, by origin
        self.worst_ms = 0.0
        self.worst_pulse_ms = 0.0
        self._folder = folder
        self._rng = rng
        # the times are judged on an idle machine only, and a test has no time for them
        self._back, self._window = (BACK_S, WINDOW_S) if options.judged else (2.0, 1.0)
        self._windows: list[tuple[Window, str, frozenset[str]]] = []
        self._pulse: list[Sample] = []

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Runs the load of three faces; then judges what has arrived."""
        site = self.site
        leaders = site.names[:2]
        topics = {leader: f"load-{leader}" for leader in leaders}
        for leader, topic in topics.items():
            site.create_topic(topic, PARTITIONS, leader)
        self.consumers = {
            topic: [Consuming(site, host, topic, PARTITIONS, watched=n) for host in site.names]
            for n, topic in enumerate(topics.values())
        }
        self.messages = Messages(site, self._folder, self.options)
        rate = self.options.rate / (2 * len(leaders))
        self.producers = [
            Producing(site, leader, topic, PARTITIONS, n, size=SEGMENTS * self.options.size, rate=rate)
            for n, (leader, topic) in enumerate(topics.items())
        ]
        everybody = [one for consumers in self.consumers.values() for one in consumers]
        with workers(*everybody, *self.producers, *self.messages.workers):
            wait_for(lambda: all(one.read > 100 for one in everybody), "all hosts to read", READ_S)
            with pulse(self._pulse):
                yield
            self._conclude()

    # --- events

    def happen(self, name: str) -> None:
        event, host = EVENTS[name], self._rng.choice(self.site.names)
        if event.grouped:
            wait_for(self._grouped, "streams to use multicast again", GROUPED_S, 0.5)
        self.happened[name] = self.happened.get(name, 0) + 1
        what = name if event.whole else f"{name} {host}"
        event.begin(self.lan, host)
        self._wait(f"while {what}", frozenset({host}) if event.out else frozenset())
        event.end(self.lan, host)
        self._wait(f"after {what}", frozenset())

    def _grouped(self) -> bool:
        """Whether each topic goes to two hosts by multicast."""
        for topic in self.consumers:
            leader = self.site.daemons[topic.removeprefix("load-")]
            for stream in leader.treecast("streams", topic):
                if stream["outgoing"]:
                    carriers = [row["carrier"] for row in stream["accounts"] if row["state"] == "live"]
                    if carriers.count("ip-multicast") < 2:
                        return False
        return True

    def _wait(self, what: str, without: frozenset[str]) -> None:
        """Lets the hosts recover, and notes a window in which all but `without` have to be quick."""
        time.sleep(self._back)
        begun = time.monotonic()
        time.sleep(self._window)
        self._windows.append((Window(what, begun, time.monotonic()), what, without))

    # --- at the end

    def _conclude(self) -> None:
        for producer in self.producers:
            producer.close_input()
        ledgers = [producer.result(PATIENCE_S) for producer in self.producers]
        self.messages.stop_publishing(self.result)
        for ledger, consumers in zip(ledgers, self.consumers.values(), strict=True):
            self.result.problems += ledger.problems
            compare(ledger, consumers, self.result, PATIENCE_S)
        self.result.row("records acknowledged", merged(ledgers).count)
        for face, found in self.messages.judged([], frozenset(), self.result).items():
            self.result.row(f"{face} messages received", sum(one.found for one in found))
            self.result.problems += [problem for one in found for problem in one.problems[:3]]
        account(self.site, self.result)
        self._count_bytes()
        self._judge_latencies()

    def _count_bytes(self) -> None:
        for daemon in self.site.daemons.values():
            for stream in daemon.treecast("streams"):
                if stream["outgoing"] and stream["sent"]:
                    sent, needed = sent_and_needed(stream)
                    at = self.bytes.setdefault(daemon.host, [0, 0])
                    at[0], at[1] = at[0] + sent, at[1] + needed

    def _judge_latencies(self) -> None:
        for consumers in self.consumers.values():
            for consumer in consumers:
                consumer.samples.sort()
                leader = consumer.topic.removeprefix("load-")
                for window, what, without in self._windows:
                    if not without & {consumer.host, leader}:
                        self._judge_window(consumer, window, what)
        if self.options.judged:
            self.result.problems += self.late

    def _judge_window(self, consumer: Consuming, window: Window, what: str) -> None:
        found = within(consumer.samples, [window])
        p99 = percentile(found, 99)
        pulse_ms = percentile(within(self._pulse, [window]), 99)
        self.worst_ms = max(self.worst_ms, p99 if found else 0.0)
        self.worst_pulse_ms = max(self.worst_pulse_ms, pulse_ms)
        if not found or p99 > MOST_MS + STEPS * pulse_ms:
            self.late.append(
                f"{what}: {len(found)} records of {consumer.topic} at {consumer.host}, p99 {p99:.1f} ms; the"
                f" machine finished a millisecond of work up to {pulse_ms:.1f} ms late"
            )


@contextlib.contextmanager
def pulse(found: list[Sample]) -> Iterator[None]:
    """Notes in `found` how late the machine finishes some work."""
    words = [sys.executable, str(Path(__file__).with_name("pulse.py"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield
        finally:
            said, _ = process.communicate(timeout=READ_S)
        found += [(at, ms) for at, ms in json.loads(said)]


def sent_and_needed(stream: dict[str, Any]) -> tuple[int, int]:
    """Returns the bytes that an origin has sent of a stream, and those that were to be sent, both without
    control. Pure.

    To be sent are its payload, once by a group and once to each host that gets it by unicast, and what hosts
    had to get again because it was lost on the way, or because they were away.
    """
    by = {"group": 0, "unicast": 0, "again": 0}
    for one in stream["sent"]:
        if one["purpose"] in _RESENT:
            kind = "unicast" if one["carrier"] == "unicast" else "group"
            by[kind if one["purpose"] == "data" else "again"] += one["bytes"]
    payload = int(stream["pace"]["payload_bytes"]) if stream.get("pace") else 0
    rows = stream["accounts"]
    records = max([row["addressed"] for row in rows], default=0)
    each = payload / records if records else 0.0
    live = each * sum(row["live"] for row in rows)
    again = each * sum(row["repaired"] + row["replayed"] + count(row["expired"]) for row in rows)
    return sum(by.values()), int(min(by["group"], payload) + min(by["unicast"], live) + again)


# --- the run


class Progress(msgspec.Struct):
    """How far a run is, over all calls of the same command."""

    done: int = 0  # events
    seconds: float = 0.0
    rows: dict[str, int] = {}
    bytes: dict[str, list[int]] = {}
    happened: dict[str, int] = {}
    worst_ms: float = 0.0
    worst_pulse_ms: float = 0.0
    late: list[str] = []  # windows in which a host was too slow
    problems: list[str] = []


def label(options: Options) -> str:
    """Returns the name under which a run and its progress are kept."""
    events = "+".join(sorted(options.events)) or "all"
    numbers = ("seed", "seconds", "hosts", "rate", "size")
    return "-".join(["lan", *(f"{key}{getattr(options, key):g}" for key in numbers), events])


def kept(options: Options) -> Path | None:
    return options.out / f"{label(options)}.progress.json" if options.out is not None else None


def resumed(options: Options) -> Progress:
    path = kept(options)
    if path is None or not path.exists():
        return Progress()
    progress = msgspec.json.decode(path.read_bytes(), type=Progress)
    options.say(f"goes on after {progress.done} events")
    return progress


def keep(progress: Progress, options: Options) -> None:
    path = kept(options)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(progress))
        new.replace(path)


def chosen(options: Options) -> list[str]:
    """Returns the names of the events that happen. Raises SystemExit for an unknown one."""
    unknown = [name for name in options.events if name not in EVENTS]
    if unknown:
        raise SystemExit(f"--events {','.join(unknown)}: there are {', '.join(EVENTS)}")
    return [name for name in EVENTS if not options.events or name in options.events]


def order(names: Sequence[str], seed: int, number: int, events: int) -> list[str]:
    """Returns the events of one site: all of them in random order, again and again."""
    rng, found = random.Random(f"{seed}/{number}"), list[str]()
    happening = [name for name in names if name != "jumbo"]
    while happening and len(found) < events:
        found += rng.sample(happening, len(happening))
    return found[:events]


def lan(options: Options, folder: Path) -> Result:
    """See the module."""
    names = chosen(options)
    total = max(1, round(options.seconds / (_SECONDS_OF_EVENT if options.judged else 6.0)))
    progress = resumed(options)
    while progress.done < total and not progress.problems:
        site_number = progress.done // SITE_EVENTS
        events = order(names, options.seed, site_number, min(SITE_EVENTS, total - progress.done))
        run_site(options, folder / f"site-{site_number}", events, names, site_number, progress)
        progress.done += max(1, len(events))
        keep(progress, options)
    if not progress.problems and (path := kept(options)) is not None:
        path.unlink(missing_ok=True)
    return shown(progress, options.judged)


def run_site(
    options: Options,
    folder: Path,
    events: Sequence[str],
    names: Sequence[str],
    number: int,
    progress: Progress,
) -> None:
    rng, begun = random.Random(f"{options.seed}/{number}/hosts"), time.monotonic()
    hosts = [f"h{n + 1}" for n in range(options.hosts)]
    large = rng.choice(hosts) if "jumbo" in names else ""
    with LanSite(folder, options, options.seed + number, large) as site:
        episode = Episode(site, options, folder, rng)
        with episode.load():
            for at, name in enumerate(events):
                episode.happen(name)
                options.say(f"site {number + 1}, event {at + 1} of {len(events)}: {name}")
    shutil.rmtree(folder / "files", ignore_errors=True)
    add(progress, episode, time.monotonic() - begun)


def add(progress: Progress, episode: Episode, seconds: float) -> None:
    progress.seconds += seconds
    progress.problems += episode.result.problems
    progress.worst_ms = max(progress.worst_ms, episode.worst_ms)
    progress.worst_pulse_ms = max(progress.worst_pulse_ms, episode.worst_pulse_ms)
    progress.late += episode.late
    for name, times in episode.happened.items():
        progress.happened[name] = progress.happened.get(name, 0) + times
    for name, value in episode.result.rows:
        progress.rows[name] = progress.rows.get(name, 0) + int(value.replace(",", ""))
    for host, (sent, needed) in episode.bytes.items():
        at = progress.bytes.setdefault(host, [0, 0])
        at[0], at[1] = at[0] + sent, at[1] + needed


def shown(progress: Progress, judged: bool) -> Result:
    """`judged`: whether bytes can be a problem. In a short run half of the time is an outage, and what an
    origin sends until it notices one weighs as much as the payload.
    """
    result = Result(problems=list(progress.problems))
    for name, times in progress.happened.items():
        result.row(f"event {name}", times)
    for name, value in progress.rows.items():
        result.row(name, value)
    for host, (sent, needed) in sorted(progress.bytes.items()):
        result.row(f"bytes that {host} has sent, and was to send", f"{sent:,} of {needed:,}")
        if judged and needed > _FEW_BYTES and sent > MOST_BYTES * needed:
            result.problems.append(f"{host} has sent {sent / needed:.2f} times the bytes that it was to send")
    result.row("worst p99 of a window", f"{progress.worst_ms:.1f} ms")
    result.row(
        "the machine finished a millisecond of work late by, p99 of a window",
        f"{progress.worst_pulse_ms:.1f} ms",
    )
    result.row(f"windows beyond {MOST_MS:g} ms", len(progress.late))
    result.table("windows in which a host was too slow", ["window"], [[text] for text in progress.late])
    return result
