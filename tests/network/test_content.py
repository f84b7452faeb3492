"""Daemons on a P4 switch that forwards by content: MQTT subscribers with filters, bytes at interfaces."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.network.conftest import StartLab
from tests.network.srv6_site import line, needed, wait_until

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.dataplane.lab.description import Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.namespaces import inside

HOSTS = ("alpha", "beta", "gamma")
LAYOUT = "stock:8s,price:u32"
PATIENCE = 120.0
PAYLOAD = "x" * 800
ON_WIRE = len(PAYLOAD) + 250  # bytes of a message in its packet
COUNT = 400


class Site:
    """A lab with switches, its controller and a daemon on each host. `links`: of all nodes."""

    def __init__(
        self, start: StartLab, folder: Path, switches: tuple[str, ...], links: tuple[tuple[str, str], ...]
    ) -> None:
        self.folder, self.links, self.switches = folder, links, switches
        self.lab = start(
            Description(
                hosts=dict.fromkeys(HOSTS, Host()),
                switches=dict.fromkeys(switches, Switch()),
                links=tuple([Link(pair) for pair in links]),
            )
        )
        self.controller = self._start_controller()
        for host in HOSTS:
            self._start_daemon(host)

    def _start_controller(self) -> subprocess.Popen[bytes]:
        lines = [f'layout = "{LAYOUT}"', "look = 0.3", f"links = {json.dumps(self.links)}", "[switches]"]
        lines += [f'{name} = "{self.lab.p4runtime(name)}"' for name in self.switches]
        for host in HOSTS:
            mac = self.lab.interface(host).mac
            lines += [f"[hosts.{host}]", f'mac = "{mac}"', f'control = "{self.lab.ipv4(host)}:7671"']
        file = self.folder / "content.toml"
        file.write_text("\n".join(lines))
        module = "treecast.middleware.control.content"
        process = self.lab.start("alpha", sys.executable, "-m", module, str(file))
        while not (found := line(process)).startswith("ready"):
            assert found, "the controller has ended"
        return process

    def _start_daemon(self, host: str) -> None:
        ip = self.lab.ipv4(host)
        command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host]
        command += ["--data", str(self.folder / host), "--kafka", "off", "--mqtt", f"{ip}:1883"]
        command += ["--admin", "off", "--stare", "off", "--amqp", "off"]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672"]
        command += ["--carrier", "content=" + LAYOUT.replace(",", ";")]
        if host != HOSTS[0]:
            token = f"@{self.folder / 'alpha' / 'join-token'}"
            command += ["--join", f"{self.lab.ipv4('alpha')}:7671", "--join-token", token]
        assert line(self.lab.start(host, *command)).startswith("ready ")

    def control(self, host: str) -> DaemonClient:
        return DaemonClient(f"unix:{self.lab.folder / host / 'run' / 'control.sock'}")

    def told(self, beginning: str) -> None:
        """Waits for the controller's next line that begins so."""
        found = line(self.controller)
        while not found.startswith(beginning):
            assert found, "the controller has ended"
            found = line(self.controller)

    def received(self, host: str) -> int:
        """Returns the bytes that have arrived at a host's interface."""
        return self.lab.counters(host, self.lab.interface(host).name)["rx_bytes"]

    def at_switch(self, switch: str) -> int:
        """Returns the bytes that have arrived at a switch from s1."""
        return self.lab.counters(switch, self.lab.end("s1", switch, at=switch).interface)["rx_bytes"]

    def client(self, host: str, name: str) -> mqtt.Client:
        """Connects an MQTT 5 client to the daemon beside it."""
        found = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
        inside(self.lab.namespace(host), lambda: found.connect(self.lab.ipv4(host), 1883))
        found.loop_start()
        return found

    def by_content(self) -> int:
        """Returns how many hosts get a stream of alpha's by content."""
        with self.control("alpha") as client:
            accounts = [account for stream in client.list_streams() for account in stream.accounts]
        return sum(account.carrier == "content" for account in accounts)


class Subscriber:
    """An MQTT client with a filter, and the numbers of the messages that it has got."""

    def __init__(self, site: Site, host: str, filter: str) -> None:
        self.numbers: list[int] = []
        self._subscribed = threading.Event()
        self.client = site.client(host, f"subscriber-{host}")
        self.client.on_message = self._message
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.subscribe(filter)

    def subscribe(self, filter: str) -> None:
        """Subscribes, or changes the filter; returns when it counts."""
        self._subscribed.clear()
        given = Properties(PacketTypes.SUBSCRIBE)
        if filter:
            given.UserProperty = ("x-treecast-filter", filter)
        self.client.subscribe("orders", options=SubscribeOptions(qos=1), properties=given)
        assert self._subscribed.wait(PATIENCE)

    def _message(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        self.numbers.append(json.loads(message.payload)["number"])


def order(number: int) -> dict[str, object]:
    return {"number": number, "stock": "GOOGL" if number % 20 == 0 else "MSFT", "price": number % 100}


def publish(client: mqtt.Client, first: int, count: int) -> None:
    """Publishes orders of QoS 1; returns when all are acknowledged."""
    found = [
        client.publish("orders", json.dumps({**order(number), "more": PAYLOAD}), qos=1)
        for number in range(first, first + count)
    ]
    for one in found:
        one.wait_for_publish(PATIENCE)
        assert one.is_published()


def has(subscriber: Subscriber, count: int) -> bool:
    return len(subscriber.numbers) >= count


def test_a_link_carries_only_what_somebody_behind_it_wants(
    lab: StartLab, tmp_path: Path, require: Callable[[object, str], None], require_tool: Callable[[str], str]
) -> None:
    needed(require, require_tool)
    site = Site(lab, tmp_path, ("s1",), (("alpha", "s1"), ("beta", "s1"), ("gamma", "s1")))
    beta = Subscriber(site, "beta", "stock == GOOGL")
    gamma = Subscriber(site, "gamma", "price >= 50")
    publisher = site.client("alpha", "publisher")
    sent = 0

    def carried() -> bool:
        nonlocal sent
        publish(publisher, sent, 20)
        sent += 20
        return site.by_content() == 2

    wait_until(carried, "no stream goes by content")
    before = {host: site.received(host) for host in HOSTS}
    first, sent = sent, sent + COUNT
    publish(publisher, first, COUNT)
    want = {
        "beta": [number for number in range(sent) if order(number)["stock"] == "GOOGL"],
        "gamma": [number for number in range(sent) if int(str(order(number)["price"])) >= 50],
    }
    wait_until(lambda: len(beta.numbers) >= len(want["beta"]), "beta misses orders")
    wait_until(lambda: len(gamma.numbers) >= len(want["gamma"]), "gamma misses orders")
    assert (beta.numbers, gamma.numbers) == (want["beta"], want["gamma"])
    size = COUNT * ON_WIRE
    shares = {host: (site.received(host) - before[host]) / size for host in ("beta", "gamma")}
    print(f"share of the bytes at interfaces: {shares}")
    # 5 % and 50 % of the messages, with headers, reports, and answers about holes.
    assert shares["beta"] < 0.3
    assert shares["gamma"] < 0.8

    def closes() -> bool:
        with site.control("alpha") as client:
            found = [one for stream in client.list_streams() for one in stream.accounts]
        content = [one for one in found if one.carrier == "content"]
        return len(content) == 2 and all(one.filtered and not one.expired for one in content)

    wait_until(closes, "accounts do not say what was filtered")


SWITCHES = ("s1", "s2", "s3", "s4")
TREE = (
    *(("alpha", "s2"), ("beta", "s3"), ("gamma", "s4")),
    *(("s1", "s2"), ("s1", "s3"), ("s1", "s4")),
)


def test_filters_come_and_go_on_four_switches(
    lab: StartLab, tmp_path: Path, require: Callable[[object, str], None], require_tool: Callable[[str], str]
) -> None:
    needed(require, require_tool)
    site = Site(lab, tmp_path, SWITCHES, TREE)
    beta = Subscriber(site, "beta", "stock == GOOGL")
    gamma = Subscriber(site, "gamma", "price >= 90")
    publisher = site.client("alpha", "publisher")
    sent = 0

    def more(count: int = 100) -> None:
        nonlocal sent
        publish(publisher, sent, count)
        sent += count

    def carried() -> bool:
        more(20)
        return site.by_content() == 2

    wait_until(carried, "no stream goes by content")
    before = {switch: site.at_switch(switch) for switch in ("s3", "s4")}
    more(200)
    googles = [number for number in range(sent) if order(number)["stock"] == "GOOGL"]
    wait_until(lambda: len(beta.numbers) >= len(googles), "beta misses orders")
    dear = [number for number in range(sent) if int(str(order(number)["price"])) >= 90]
    wait_until(lambda: len(gamma.numbers) >= len(dear), "gamma misses orders")
    size = 200 * ON_WIRE
    shares = {switch: (site.at_switch(switch) - before[switch]) / size for switch in before}
    print(f"share of the bytes at links between switches: {shares}")
    # 5 % and 10 % of the messages, with headers, reports, answers about holes, and plain traffic.
    assert max(shares.values()) < 0.5
    # Messages that are published after a SUBACK arrive, whatever the switches have learned by then.
    want = googles
    for filter, passes in (
        ("price >= 50", lambda one: int(str(one["price"])) >= 50),
        ("price == 7", lambda one: one["price"] == 7),
        (
            "stock == MSFT and not price > 3",
            lambda one: one["stock"] == "MSFT" and int(str(one["price"])) <= 3,
        ),
    ):
        first = sent
        beta.subscribe(filter)
        more()
        want = want + [number for number in range(first, sent) if passes(order(number))]
        # The next filter would drop what comes late.
        wait_until(partial(has, beta, len(want)), f"beta misses orders: {filter}")
        assert beta.numbers == want
    dear = [number for number in range(sent) if int(str(order(number)["price"])) >= 90]
    wait_until(lambda: len(gamma.numbers) >= len(dear), "gamma misses orders")
    assert gamma.numbers == dear
