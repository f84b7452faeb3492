"""Agents beside real Mosquittos, with paho's clients on both sides and at a daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.clients.agents.mosquitto.conftest import ONE, OTHER, Start
from tests.clients.agents.mosquitto.site import PATIENCE, Broker, subscribe
from tests.clients.agents.process import AgentProcess
from tests.clients.mqtt.paho_client import Client, Newer

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def meet(one: AgentProcess, *others: str) -> None:
    """Waits until an agent knows what others want."""
    one.until(lambda found: set(others) <= set(found["sites"]), f"it does not know {others}")


def user_properties(message: Any) -> list[tuple[str, str]]:
    return list(getattr(message.properties, "UserProperty", []))


def test_messages_cross_as_they_were_published(
    brokers: dict[str, Broker], hub: DaemonProcess, start: Start, clients: list[Client]
) -> None:
    """Two Mosquittos and a daemon are one network; nothing comes twice, and nothing comes back."""
    agents = {site: start(site, ["plant/# both 2"]) for site in (ONE, OTHER)}
    here, there = brokers[ONE].client("here"), brokers[OTHER].client("there")
    daemon = Newer(hub, "at the daemon")
    clients += [here, there, daemon]
    for client in clients:
        subscribe(client, "plant/#")
    meet(agents[ONE], OTHER)
    meet(agents[OTHER], ONE)
    given = Properties(PacketTypes.PUBLISH)
    given.ContentType, given.CorrelationData, given.ResponseTopic = "text/plain", b"\1\2", "plant/answers"
    given.MessageExpiryInterval, given.PayloadFormatIndicator = 3600, 1
    given.UserProperty = ("colour", "blue")
    for client in clients:
        name = client.paho._client_id.decode()
        for qos in (0, 1, 2):
            client.publish(f"plant/{name}/{qos}", f"{name} {qos}".encode(), qos, properties=given)
    expected = {
        (f"plant/{name}/{qos}", f"{name} {qos}".encode(), qos)
        for name in ("here", "there", "at the daemon")
        for qos in (0, 1, 2)
    }
    for client in clients:
        found = [client.next() for _ in range(9)]
        assert {(one.topic, one.payload, one.qos) for one in found} == expected
        for one in found:
            properties = one.properties
            assert properties.ContentType == "text/plain"
            assert properties.CorrelationData == b"\1\2"
            assert properties.ResponseTopic == "plant/answers"
            assert properties.PayloadFormatIndicator == 1
            assert 0 < properties.MessageExpiryInterval <= 3600
            assert ("colour", "blue") in user_properties(one)
        hops = {one.topic.split("/")[1]: dict(user_properties(one)).get("treecast-hops", "") for one in found}
        own = client.paho._client_id.decode()
        site = {"here": ONE, "there": OTHER}.get(own, "")
        assert {name: hop.rpartition("/")[2] for name, hop in hops.items()} == {
            name: "" if name == own else site for name in ("here", "there", "at the daemon")
        }
    for site, one in agents.items():
        found = one.until(lambda now: now["lag"] == now["owed"] == 0, "it is not settled")
        assert (found["counters"]["sent"], found["counters"]["looped"]) == (3, 0), site
        assert (found["counters"]["received"], found["counters"]["published"]) == (6, 6)
    assert all(client.messages.empty() for client in clients)


def test_rows_of_plain_messages_keep_their_order(
    brokers: dict[str, Broker], start: Start, clients: list[Client]
) -> None:
    agents = {site: start(site, ["rows/# both 1"]) for site in (ONE, OTHER)}
    meet(agents[ONE], OTHER)
    there, here = brokers[OTHER].client("there"), brokers[ONE].client("here")
    clients += [there, here]
    subscribe(there, "rows/#", 1)
    count = 3000
    for number in range(count):
        here.paho.publish(f"rows/{number % 3}", b"%d" % number, number % 2)
    got = [there.next() for _ in range(count)]
    for topic in range(3):
        for qos in (0, 1):  # Mosquitto keeps the order of each QoS
            numbers = [int(one.payload) for one in got if one.topic == f"rows/{topic}" and one.qos == qos]
            assert numbers == [n for n in range(count) if n % 3 == topic and n % 2 == qos]


def test_topics_are_mapped_and_the_older_version_serves(
    brokers: dict[str, Broker], hub: DaemonProcess, start: Start, clients: list[Client]
) -> None:
    one = start(ONE, ["# out 1 mine/ world/lisbon/", '"" in 1 from/oslo world/oslo/state'])
    other = start(OTHER, ['# both 1 "" world/oslo/'], table='protocol = "3.1.1"')
    meet(one, OTHER)
    meet(other, ONE)
    here, there, daemon = brokers[ONE].client("here"), brokers[OTHER].client("there"), Newer(hub, "third")
    clients += [here, there, daemon]
    subscribe(here, "from/#", 1)
    for name in ("state", "order"):
        subscribe(there, name, 1)
    daemon.subscribe("world/#", 1)
    for number in range(20):
        here.publish("mine/a/b", b"%d" % number, 1)
    assert daemon.take(20) == [("world/lisbon/a/b", b"%d" % number, 1) for number in range(20)]
    there.publish("state", b"up", 1)
    assert there.take(1) == [("state", b"up", 1)]
    assert here.take(1) == [("from/oslo", b"up", 1)]
    assert daemon.take(1) == [("world/oslo/state", b"up", 1)]
    daemon.publish("world/oslo/order", b"go", 1)
    assert there.take(1) == [("order", b"go", 1)]
    found = other.until(lambda now: now["lag"] == now["owed"] == 0, "it is not settled")
    assert found["broker"].startswith("MQTT 3.1.1")
    assert found["counters"]["sent"] == 1, "its own message came back to it"
    assert there.messages.empty()


def kept(client: Client, before: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    """Reads until what a client knows of retained messages is as wanted. An agent that comes back may repeat
    what its broker has already, since it was not told how far the broker is."""
    known = dict(before)
    while known != wanted:
        one = client.next()
        known[one.topic] = one.payload
        if not one.payload:
            del known[one.topic]


def test_retained_messages_are_the_same_at_all_sites(
    brokers: dict[str, Broker], start: Start, clients: list[Client]
) -> None:
    """Also at one that was away, and at a broker that has lost everything."""
    rule = ["kept/# both 1"]
    agents = {site: start(site, rule) for site in (ONE, OTHER)}
    meet(agents[ONE], OTHER)
    here, there = brokers[ONE].client("here"), brokers[OTHER].client("there")
    clients += [here, there]
    subscribe(there, "kept/#", 1)
    for name in ("a", "b", "c"):
        here.publish(f"kept/{name}", b"1", 1, retain=True)
    assert {(one.topic, one.retain) for one in (there.next(), there.next(), there.next())} == {
        (f"kept/{name}", True) for name in ("a", "b", "c")
    }
    assert agents[OTHER].stop() == 0
    here.publish("kept/a", b"2", 1, retain=True)
    here.publish("kept/b", b"", 1, retain=True)
    agents[OTHER] = start(OTHER, rule)
    last = {"kept/a": b"2", "kept/c": b"1"}
    kept(there, {"kept/a": b"1", "kept/b": b"1", "kept/c": b"1"}, last)
    found = agents[OTHER].until(lambda now: now["lag"] == 0, "the broker does not take them")
    connects = found["counters"]["connects"]  # the agent may not have noticed at once that the broker went
    brokers[OTHER].stop()
    brokers[OTHER].forget()
    brokers[OTHER].start()
    agents[OTHER].until(
        lambda now: now["counters"]["connects"] > connects and now["serving"] and now["lag"] == 0,
        "the agent does not come back",
    )
    late = brokers[OTHER].client("late")
    clients.append(late)
    subscribe(late, "kept/#", 1)
    kept(late, {}, last)
    late.publish("kept/c", b"3", 1, retain=True)  # and the other way, after all that
    subscribe(here, "kept/c", 1)
    while here.next().payload != b"3":
        pass


@pytest.mark.parametrize("victim", ["publisher's agent", "subscriber's agent", "subscriber's broker"])
def test_kills_lose_nothing(
    brokers: dict[str, Broker], start: Start, clients: list[Client], victim: str
) -> None:
    rule = [f"load/{victim[:3]}/# both 1"]
    agents = {site: start(site, rule) for site in (ONE, OTHER)}
    meet(agents[ONE], OTHER)
    topic = f"load/{victim[:3]}/{victim[-6:-1]}"
    here, there = brokers[ONE].client("here"), brokers[OTHER].client("there " + victim, lasting=True)
    clients += [here, there]
    subscribe(there, "load/#", 1)
    for number in range(900):
        here.publish(topic, b"%d" % number, 1)
        if number % 300 != 150:
            continue
        if victim == "subscriber's broker":
            brokers[OTHER].stop()
            brokers[OTHER].start()
            continue
        site = ONE if victim.startswith("publisher") else OTHER
        agents[site].kill()
        agents[site].start()
    got: dict[int, int] = {}
    while len(got) < 900:
        number = int(there.next().payload)
        got[number] = got.get(number, 0) + 1
    for one in agents.values():
        one.until(lambda now: now["serving"] and now["lag"] == now["owed"] == 0, "it is not settled")
    assert sum(got.values()) - 900 <= 3 * 1000  # receive_maximum of each kill: what docs/agents.md says


def test_a_site_that_is_away_fills_the_spool_and_then_the_broker_keeps(
    brokers: dict[str, Broker], start: Start, clients: list[Client]
) -> None:
    """The agent stops acknowledging; what it has not taken waits at the broker, and nothing is lost."""
    rule, bound = ["much/# both 1"], "spool_bytes = 1048576"
    agents = {site: start(site, rule, more=bound) for site in (ONE, OTHER)}
    meet(agents[ONE], OTHER)
    there = brokers[OTHER].client("there much", lasting=True)
    subscribe(there, "much/#", 1)
    agents[OTHER].kill()
    here = brokers[ONE].client("here")
    clients += [here, there]
    count, body = 400, b"x" * 10_000
    for number in range(count):
        here.publish("much/x", b"%d " % number + body, 1)
    held = agents[ONE].until(
        lambda now: any(one["what"] == "spool" for one in now["troubles"]), "the spool is not full"
    )
    assert held["spool_bytes"] < 8 << 20
    agents[OTHER].start()
    got = {int(there.next().payload.split()[0]) for _ in range(count)}
    assert got == set(range(count))
    agents[ONE].until(lambda now: not now["troubles"] and now["owed"] == 0, "it does not go on")


def test_a_second_agent_for_one_broker_refuses(brokers: dict[str, Broker], start: Start) -> None:
    first = start(ONE, ["lock/# both 1"])
    second = start("intruder", ["lock/# both 1"], broker=brokers[ONE], wait=False)
    assert second.process is not None
    assert second.process.wait(PATIENCE) == 1
    assert f"agent {ONE} of this cluster is connected" in second.log.read_text()
    first.until(lambda now: now["serving"], "the first one serves no longer")


def test_tls_with_a_client_certificate_and_a_user(
    hub: DaemonProcess, start: Start, clients: list[Client], certificate: Path, tmp_path: Path
) -> None:
    """A broker that asks for both, also as `doctor` sees it with the wrong password."""
    passwords = tmp_path / "passwords"
    made = subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "treecast", "secret"], check=False)
    if made.returncode:
        pytest.fail("mosquitto_passwd does not work")
    tls = f"cafile {certificate}\ncertfile {certificate}\nkeyfile {certificate}\nrequire_certificate true\n"
    broker = Broker(tmp_path / "broker", listener=f"allow_anonymous false\npassword_file {passwords}\n{tls}")
    broker.start()
    try:
        table = (
            f'tls = true\ntls_ca = "{certificate}"\ntls_certificate = "{certificate}"\nuser = "treecast"\n'
        )
        daemon = Newer(hub, "reader")
        clients.append(daemon)
        daemon.subscribe("secured/#")
        one = start("secured", ["secured/# out 1"], broker=broker, table=f'{table}password = "secret"\n')
        one.until(lambda now: now["connected"], "it is not connected")
        command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(broker.port), "--cafile", str(certificate)]
        command += ["--cert", str(certificate), "--key", str(certificate), "-u", "treecast", "-P", "secret"]
        subprocess.run([*command, "-q", "1", "-t", "secured/x", "-m", "hello"], check=True)
        assert daemon.take(1) == [("secured/x", b"hello", 1)]
        asked = [
            sys.executable,
            "-m",
            "treecast.middleware.cli",
            "agent",
            "doctor",
            "--config",
            str(one.config),
        ]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert "MQTT 5" in done.stdout
        one.config.write_text(one.config.read_text().replace('"secret"', '"wrong"'))
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "it refuses the agent's user" in done.stdout.replace("\n", " ")
    finally:
        broker.stop()
