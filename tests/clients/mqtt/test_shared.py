"""Shared subscriptions over two daemons: an acknowledged message goes to one member, whoever leaves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.clients.mqtt.paho_client import PATIENCE_S, Client, Newer
from tests.pair import pair

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

FACES = ("--admin", "off", "--stare", "off", "--amqp", "off", "--kafka", "off", "--mqtt", "127.0.0.1:0")


def came(*clients: Client) -> list[bytes]:
    """Removes and returns what the clients have received so far."""
    found = []
    for client in clients:
        while not client.messages.empty():
            found.append(client.messages.get().payload)
    return found


def gather(clients: list[Client], found: Counter[bytes], wanted: set[bytes]) -> None:
    """Adds what comes to `found`, until it has all of `wanted`."""
    end = time.monotonic() + PATIENCE_S
    while not found.keys() >= wanted:
        missing = sorted(wanted - found.keys())
        assert time.monotonic() < end, f"{len(missing)} of {len(wanted)} did not come: {missing[:10]}"
        found.update(came(*clients))
        time.sleep(0.02)


def publish_all(publisher: Client, topic: str, payloads: list[bytes], pause: float) -> None:
    """Publishes with QoS 1. Returns when all are acknowledged."""
    sent = []
    for payload in payloads:
        sent.append(publisher.paho.publish(topic, payload, 1))
        time.sleep(pause)
    for one in sent:
        one.wait_for_publish(PATIENCE_S)
        assert publisher.reasons.pop(one.mid) in (0, 0x10)  # success, or no subscriber at this host


def recorded(host: DaemonProcess, pattern: str) -> None:
    """Returns when the coordinator has recorded that some host wants a pattern of topics."""
    end = time.monotonic() + PATIENCE_S
    with DaemonClient(host.control) as client:
        while all((one.kind, one.what) != ("subscribed", pattern) for one in client.list_events().events):
            assert time.monotonic() < end, f"nobody's interest in {pattern} was recorded"
            time.sleep(0.02)


@pytest.mark.parametrize("how", ["unsubscribes", "disconnects"])
def test_a_member_at_another_host_leaves_under_load(
    hosts: list[DaemonProcess], clients: list[Client], how: str
) -> None:
    topic, group = f"load/{how}", f"$share/g/load/{how}"
    stays, publisher = Newer(hosts[0], f"stays-{how}"), Newer(hosts[0], f"p-{how}")
    clients += [stays, publisher]
    stays.subscribe(group)
    for turn in range(3):
        goes = Newer(hosts[1], f"goes-{how}-{turn}")
        clients.append(goes)
        goes.subscribe(group)
        payloads = [b"%d:%d" % (turn, number) for number in range(300)]
        sending = threading.Thread(target=publish_all, args=(publisher, topic, payloads, 0.0005))
        sending.start()
        found: Counter[bytes] = Counter(goes.payloads(30))
        if how == "unsubscribes":
            goes.paho.unsubscribe(group)
        else:
            goes.paho.disconnect()
        sending.join()
        gather([stays, goes], found, set(payloads))


def test_a_member_that_is_away_at_another_host_is_passed_over(
    hosts: list[DaemonProcess], clients: list[Client]
) -> None:
    here, away = Newer(hosts[0], "here"), Newer(hosts[1], "away", lasting=True)
    publisher, watcher = Newer(hosts[0], "p-away"), Newer(hosts[1], "watcher")
    clients += [here, publisher, watcher]
    for client in (here, away):
        client.subscribe("$share/g/away/#")
    away.close()
    watcher.subscribe("$share/g/away/other")  # confirmed after the home has been told of those before
    for number in range(20):
        publisher.publish("away/a", b"%d" % number)
    found: Counter[bytes] = Counter()
    gather([here], found, {b"%d" % number for number in range(20)})
    back = Newer(hosts[1], "away", lasting=True)
    clients.append(back)
    back.publish("away/a", b"later")
    back.publish("away/a", b"last")
    gather([here, back], found, {b"later", b"last"})
    assert set(found.values()) == {1}


@pytest.mark.parametrize("home", [0, 1])
def test_both_hosts_are_killed_and_one_returns_first(
    tmp_path: Path, clients: list[Client], home: int
) -> None:
    """Each QoS 2 message goes to one member, also if the other host is the home and returns later."""
    with pair(tmp_path, FACES) as both:
        members: list[Client] = [Newer(host, f"m{number}", lasting=True) for number, host in enumerate(both)]
        plain = Newer(both[1], "plain", lasting=True)
        clients += [*members, plain]
        for number in (home, 1 - home):
            members[number].subscribe("$share/g/k/#")
        plain.subscribe("k/#")
        recorded(
            both[0], "k/#"
        )  # a host that was killed knows others' interest as the coordinator recorded it
        for host in both:
            host.pin_ports()
        for host in both:
            host.kill()
        both[0].start()
        publisher = Newer(both[0], "p")
        clients.append(publisher)
        payloads = {b"%d" % number for number in range(60)}
        for payload in sorted(payloads):
            publisher.publish("k/a", payload, 2)
        both[1].start()
        shared: Counter[bytes] = Counter()
        direct: Counter[bytes] = Counter()
        gather([plain], direct, payloads)
        gather(members, shared, payloads)
        publisher.publish("k/a", b"last", 2)
        gather([plain], direct, payloads | {b"last"})  # behind all that the first host sent before
        gather(members, shared, payloads | {b"last"})
        assert set(shared.values()) == {1} == set(direct.values())
        for client in clients:
            client.close()
        clients.clear()
