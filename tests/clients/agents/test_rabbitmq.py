"""Agents beside real RabbitMQ servers, with pika's clients on both sides."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pika
import pytest
from tests.clients.agents.authority import Authority
from tests.clients.agents.conftest import LARGEST, Site
from tests.clients.agents.sites import CERTIFIED, PATIENCE, USER, Agent, FaceServer, Server, until

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_numbers = itertools.count(1)
Start = Callable[..., Agent]


@pytest.fixture
def name() -> str:
    """A name for exchanges and queues that no other test uses."""
    return f"test{next(_numbers)}"


def declare(name: str, kind: str = "topic") -> str:
    return f'exchanges = ["{name}*"]\ndeclare = [{{ name = "{name}", type = "{kind}" }}]'


class Queue:
    """A queue of a site's server, and an application that consumes from it."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self._server = server
        self.connection = server.connect()
        self.channel = self.connection.channel()
        self.channel.queue_declare(name, durable=True)

    def bind(self, exchange: str, key: str, arguments: dict[str, Any] | None = None) -> Queue:
        self.channel.queue_bind(self.name, exchange, key, arguments)
        return self

    def take(self, count: int) -> list[tuple[Any, Any, bytes]]:
        """Returns `count` messages and acknowledges them."""
        found = []
        for method, properties, body in self.channel.consume(self.name, inactivity_timeout=PATIENCE):
            assert method is not None, f"{len(found)} of {count} came"
            found.append((method, properties, body))
            self.channel.basic_ack(method.delivery_tag)
            if len(found) == count:
                break
        self.channel.cancel()
        return found

    def take_all(self, wanted: Iterable[bytes]) -> list[bytes]:
        """Takes until each of these has come. Returns all bodies, with what came again.

        By one consumer: what a consumer leaves at its end the server puts back, and delivers again.
        """
        awaited = frozenset(wanted)
        missing, bodies = set(awaited), []
        for method, _, body in self.channel.consume(self.name, inactivity_timeout=PATIENCE):
            assert method is not None, f"{len(missing)} of {len(awaited)} did not come"
            assert body in awaited, body[:40]
            bodies.append(body)
            missing.discard(body)
            self.channel.basic_ack(method.delivery_tag)
            if not missing:
                break
        self.channel.cancel()
        return bodies

    @property
    def ready(self) -> int:
        found: int = self.channel.queue_declare(self.name, passive=True).method.message_count
        return found


def publish(
    server: Server, exchange: str, messages: Sequence[tuple[str, bytes, pika.BasicProperties | None]]
) -> None:
    """Publishes with confirms."""
    connection = server.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    for key, body, properties in messages:
        channel.basic_publish(exchange, key, body, properties)
    connection.close()


def joined(start: Start, sites: list[Site], rabbit: str) -> list[Agent]:
    """Starts an agent at each site; returns when all serve."""
    agents = [start(site.agent(rabbit)) for site in sites]
    for agent in agents:
        agent.until(lambda found: found["serving"], "the agent does not serve")
    return agents


def settled(agents: list[Agent]) -> None:
    """Waits until all that was published has crossed. What an agent owes at its end, it repeats in the next
    test, and counts it there."""
    for agent in agents:
        agent.until(lambda found: found["lag"] == found["owed"] == 0, "not all is settled")


def bound(site: Site, agent: Agent, exchange: str, keys: set[str]) -> None:
    """Waits until the agent's queue has these bindings of an exchange, and no others."""
    queue = f"treecast.agent.{agent.status()['cluster_id'][:8]}"

    def found() -> bool:
        there = site.server.api(f"queues/%2F/{queue}/bindings") or []
        return {one["routing_key"] for one in there if one["source"] == exchange} == keys

    until(found, f"the queue is not bound to {exchange} by {keys}")


def test_messages_cross_as_they_were_published(sites: list[Site], start: Start, name: str) -> None:
    agents = joined(start, sites, declare(name))
    queue = Queue(sites[1].server, name).bind(name, "eu.*.heat").bind(name, "us.#")
    bound(sites[0], agents[0], name, {"eu.*.heat", "us.#"})
    properties = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="none",
        headers={"n": 1, "nested": {"a": [1, "b"]}, "flag": True},
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        reply_to="r",
        expiration="600000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    large = b"x" * 400_000
    messages = [
        ("eu.a.heat", b"1", properties),
        ("eu.a.cold", b"no", None),
        ("us", large, None),
        ("us.b.c", b"", None),
    ]
    publish(sites[0].server, name, messages)
    got = queue.take(3)
    assert [(method.routing_key, body) for method, _, body in got] == [
        ("eu.a.heat", b"1"),
        ("us", large),
        ("us.b.c", b""),
    ]
    assert {method.exchange for method, _, _ in got} == {name}
    first = got[0][1]
    hops = first.headers.pop("x-treecast-hops")
    assert [hop.partition("/")[2] for hop in hops] == [sites[0].name]
    assert vars(first) == vars(properties)
    settled(agents)
    assert agents[0].status()["counters"]["sent"] == 3
    counters = agents[1].status()["counters"]
    assert counters["published"] == counters["received"] == 3


@pytest.mark.parametrize(
    ("kind", "binding", "arguments", "keys"),
    [
        ("direct", "a/b", None, ["a/b"]),
        ("fanout", "", None, ["any", "key"]),
        ("headers", "", {"n": 1}, ["k"]),
    ],
)
def test_other_types_of_exchanges(
    sites: list[Site], start: Start, name: str, kind: str, binding: str, arguments: Any, keys: list[str]
) -> None:
    agents = joined(start, sites, declare(name, kind))
    queue = Queue(sites[1].server, name).bind(name, binding, arguments)
    bound(sites[0], agents[0], name, {binding})
    wrong = [("other", b"wrong", None)] if kind != "fanout" else []
    right = pika.BasicProperties(headers={"n": 1})
    publish(sites[0].server, name, [*wrong, *((key, key.encode(), right) for key in keys)])
    assert [body for _, _, body in queue.take(len(keys))] == [key.encode() for key in keys]
    assert queue.ready == 0
    settled(agents)


def test_messages_go_round_no_loop(sites: list[Site], start: Start, name: str) -> None:
    """Both sites want the same, so what one publishes at its server comes back to its agent's queue."""
    agents = joined(start, sites, declare(name))
    queues = [Queue(site.server, name).bind(name, "#") for site in sites]
    for site, agent in zip(sites, agents, strict=True):
        bound(site, agent, name, {"#"})
    for number, site in enumerate(sites):
        publish(site.server, name, [("k", b"%d" % number, None)] * 50)
    for queue in queues:
        assert sorted(body for _, _, body in queue.take(100)) == [b"0"] * 50 + [b"1"] * 50
    for agent in agents:
        agent.until(lambda found: found["counters"]["looped"] == 50, "what came back is not recognised")
    assert [queue.ready for queue in queues] == [0, 0]
    settled(agents)
    assert [agent.status()["counters"]["sent"] for agent in agents] == [50, 50]


def test_interest_follows_the_bindings(sites: list[Site], start: Start, name: str) -> None:
    """At the first site changes are known by events, at the second by polling."""
    agents = joined(start, sites, declare(name))
    for here, there in ((0, 1), (1, 0)):
        queue = Queue(sites[here].server, f"{name}.{here}").bind(name, "a").bind(name, "b.#.c")
        bound(sites[there], agents[there], name, {"a", "b.#"})
        queue.channel.queue_unbind(queue.name, name, "a")
        bound(sites[there], agents[there], name, {"b.#"})
        queue.channel.queue_delete(queue.name)
        bound(sites[there], agents[there], name, set())
    assert [agent.status()["interest"] for agent in agents] == ["events", "polling"]


def test_exchanges_exist_alike_and_clashes_are_refused_at_the_newcomer(
    sites: list[Site], start: Start, name: str
) -> None:
    channels = [site.server.connect().channel() for site in sites]
    channels[0].exchange_declare(f"{name}.shared", "direct", durable=False)
    channels[1].exchange_declare(f"{name}.clash", "fanout")
    first = start(sites[0].agent(declare(f"{name}.clash", "topic") + f"\n# {name}"))
    first.until(lambda found: f"{name}.clash" in found["exchanges"], "it is not declared")
    both = f'exchanges = ["{name}.*"]'
    assert first.stop() == 0
    first = start(sites[0].agent(both))
    first.until(lambda found: f"{name}.shared" in found["exchanges"], "it is not carried")
    second = start(sites[1].agent(both))
    shared = {f"{name}.shared": "direct"}
    found = second.until(
        lambda found: found["exchanges"] == shared and found["troubles"], "nothing is shared, or wrong"
    )
    [trouble] = found["troubles"]
    assert trouble["what"] == f"exchange {name}.clash"
    assert "type 'fanout' here and 'topic' at the other sites" in trouble["detail"]
    there = {one["name"]: one for one in sites[1].server.api("exchanges/%2F")}
    assert there[f"{name}.clash"]["type"] == "fanout"
    assert (there[f"{name}.shared"]["type"], there[f"{name}.shared"]["durable"]) == ("direct", False)


def test_nothing_is_lost_when_agents_are_killed(sites: list[Site], start: Start, name: str) -> None:
    agents = joined(start, sites, declare(name))
    queue = Queue(sites[1].server, name).bind(name, "#")
    bound(sites[0], agents[0], name, {"#"})
    durable = pika.BasicProperties(delivery_mode=2)
    numbers = iter(range(100_000))

    def some() -> None:
        publish(sites[0].server, name, [("k", b"%d" % next(numbers), durable) for _ in range(200)])

    some()
    for victim in (1, 0, 1):
        agents[victim].kill()
        some()  # while the agent is away
        agents[victim].start()
        some()
    total = next(numbers)
    taken = [int(body) for body in queue.take_all(b"%d" % number for number in range(total))]
    settled(agents)
    firsts = list(dict.fromkeys(taken))
    assert firsts == sorted(firsts)


def test_nothing_is_lost_when_a_server_is_killed(sites: list[Site], start: Start, name: str) -> None:
    agents = joined(start, sites, declare(name))
    Queue(sites[1].server, name).bind(name, "#")
    bound(sites[0], agents[0], name, {"#"})
    durable = pika.BasicProperties(delivery_mode=2)
    messages = [("k", b"%d" % number, durable) for number in range(600)]
    publish(sites[0].server, name, messages[:300])
    sites[1].server.node.restart(120)
    publish(sites[0].server, name, messages[300:])
    agents[1].until(lambda found: found["serving"], "it does not serve again")
    Queue(sites[1].server, name).take_all(body for _, body, _ in messages)
    settled(agents)


def test_a_message_that_the_server_refuses_does_not_stop_the_others(
    sites: list[Site], start: Start, name: str
) -> None:
    agents = joined(start, sites, declare(name))
    queue = Queue(sites[1].server, name).bind(name, "#")
    bound(sites[0], agents[0], name, {"#"})
    bodies = [b"1", b"x" * (LARGEST + 1), b"2", b"y" * (LARGEST - 1000), b"3"]
    publish(sites[0].server, name, [("k", body, None) for body in bodies])
    queue.take_all([bodies[0], *bodies[2:]])
    settled(agents)
    assert agents[1].status()["counters"]["refused_there"] == {"the server refuses it": 1}
    assert "server refuses a message, which is given up" in agents[1].log.read_text()


def test_what_the_server_does_not_take_is_bounded(sites: list[Site], start: Start, name: str) -> None:
    """The second agent leaves the streams beyond its bound; the first one then stops taking, and its server
    keeps the rest."""
    bound_bytes = 1 << 20
    agents = [start(site.agent(declare(name), agent=f"spool_bytes = {bound_bytes}")) for site in sites]
    for agent in agents:
        agent.until(lambda found: found["serving"], "the agent does not serve")
    Queue(sites[1].server, name).bind(name, "#")
    bound(sites[0], agents[0], name, {"#"})
    sites[1].server.node.process.kill()
    durable = pika.BasicProperties(delivery_mode=2)
    bodies = [b"%d " % number + b"x" * 10_000 for number in range(600)]
    publish(sites[0].server, name, [("k", body, durable) for body in bodies])
    there = agents[1].until(lambda found: found["lag"], "nothing comes to the second site")
    here = agents[0].until(
        lambda found: any("other sites do not take more" in one["detail"] for one in found["troubles"]),
        "nothing holds it",
    )
    assert here["counters"]["held"]
    assert here["counters"]["taken"] < 600
    assert max(there["lag"], agents[1].status()["lag"]) < 300
    sites[1].server.node.restart(120)
    Queue(sites[1].server, name).take_all(bodies)
    settled(agents)


def test_a_second_agent_for_the_same_server_refuses(sites: list[Site], start: Start, name: str) -> None:
    start(sites[0].agent(declare(name))).until(lambda found: found["serving"], "the agent does not serve")
    second = sites[0].agent(declare(name), site="another")
    done = subprocess.run(second.command(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "another agent of this cluster is connected" in done.stderr


def test_doctor_and_status_say_what_is_wrong(sites: list[Site], start: Start, name: str) -> None:
    agent = start(sites[1].agent(declare(name)))
    agent.until(lambda found: found["serving"], "the agent does not serve")
    command = agent.command()[:3]
    status = subprocess.run(
        [*command, "agent", "status", "--admin", f"127.0.0.1:{agent.admin}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert status.returncode == 0, status.stderr
    assert f"{name} (topic)" in status.stdout
    doctor = subprocess.run(
        [*command, "agent", "doctor", "--config", str(agent.config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert doctor.returncode == 0, doctor.stdout
    assert "rabbitmq-plugins enable rabbitmq_event_exchange" in doctor.stdout
    agent.config.write_text(agent.config.read_text().replace('user = "treecast"', 'user = "nobody"'))
    doctor = subprocess.run(
        [*command, "agent", "doctor", "--config", str(agent.config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert doctor.returncode == 1
    assert "ACCESS_REFUSED" in doctor.stdout


def test_exchanges_that_a_policy_names(sites: list[Site], start: Start, name: str) -> None:
    """One that is made later counts at once, and one that is cleared no longer."""
    policy = f'policies = ["{name}-*"]'
    agents = joined(start, sites, policy)
    for site in sites:
        site.server.connect().channel().exchange_declare(f"{name}.left", "topic")
        body = {
            "pattern": f"^{name}\\.orders",
            "definition": {"alternate-exchange": "amq.fanout"},
            "apply-to": "exchanges",
        }
        site.server.put(f"policies/%2F/{name}-sites", body)
    sites[0].server.connect().channel().exchange_declare(f"{name}.orders", "topic", durable=True)
    for agent in agents:
        agent.until(lambda found: found["exchanges"] == {f"{name}.orders": "topic"}, "it is not carried")
    queue = Queue(sites[1].server, name).bind(f"{name}.orders", "#")
    bound(sites[0], agents[0], f"{name}.orders", {"#"})
    publish(sites[0].server, f"{name}.orders", [("k", b"1", None)])
    assert [body for _, _, body in queue.take(1)] == [b"1"]
    for site in sites:
        site.server.delete(f"policies/%2F/{name}-sites")
    for agent in agents:
        agent.until(lambda found: found["exchanges"] == {} and not found["troubles"], "it is carried still")
    settled(agents)


def test_a_daemons_own_face_is_a_site(
    sites: list[Site],
    start: Start,
    name: str,
    hub: DaemonProcess,
    data: Path,
    tmp_path: Path,
) -> None:
    """The agent stands beside the daemon as beside a RabbitMQ server: one network of both."""
    faces = [word for face in ("kafka", "mqtt", "stare") for word in (f"--{face}", "off")]
    flags = [*faces, "--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    daemon = DaemonProcess(tmp_path / "face", flags).start()
    try:
        _face_as_a_site(sites[0], Site(f"face-{name}", data, FaceServer(daemon), hub), start, name)
    finally:
        daemon.stop()
        daemon.clean_up()


def _face_as_a_site(rabbit: Site, own: Site, start: Start, name: str) -> None:
    face = own.server
    agents = [start(site.agent(declare(name))) for site in (rabbit, own)]
    for agent in agents:
        agent.until(lambda found: found["serving"], "the agent does not serve")
    owed = [agent.status()["owed"] for agent in agents]  # to sites of other tests, which are away
    queues = [Queue(server, name).bind(name, "#") for server in (rabbit.server, face)]
    for site, agent in zip((rabbit, own), agents, strict=True):
        bound(site, agent, name, {"#"})
    properties = pika.BasicProperties(delivery_mode=2, headers={"n": 1})
    publish(face, name, [("at.face", b"1", properties)] * 20)
    publish(rabbit.server, name, [("at.rabbit", b"2", properties)] * 20)
    for queue in queues:
        found = queue.take(40)
        assert sorted(method.routing_key for method, _, _ in found) == ["at.face"] * 20 + ["at.rabbit"] * 20
        assert {one.headers["n"] for _, one, _ in found} == {1}
    for agent, most in zip(agents, owed, strict=True):
        agent.until(lambda now, most=most: now["lag"] == 0 and now["owed"] <= most, "it is not settled")
    face.disconnect()


def test_a_log_in_by_certificate(sites: list[Site], start: Start, name: str, authority: Authority) -> None:
    """Over TLS, at a listener that asks for a certificate: the agent has no password."""
    log_in = (
        f'address = "127.0.0.1:{sites[0].server.tls_port}"\nuser = "{CERTIFIED}"\n'
        f'management_user = "{USER}"\nmanagement_password = "{USER}"\n'
        f'tls = true\ntls_ca = "{authority.ca}"\ntls_certificate = "{authority.client}"\n'
    )
    agents = [start(sites[0].agent(log_in + declare(name))), start(sites[1].agent(declare(name)))]
    for agent in agents:
        agent.until(lambda found: found["serving"], "the agent does not serve")

    def known() -> bool:  # the plugin shows a connection some seconds after it was opened
        found = [one for one in sites[0].server.api("connections") or [] if one.get("user") != USER]
        return {(one.get("user"), one.get("ssl"), one.get("auth_mechanism")) for one in found} == {
            (CERTIFIED, True, "EXTERNAL")
        }

    until(known, "the agent is not logged in by its certificate")
    queue = Queue(sites[1].server, name).bind(name, "#")
    bound(sites[0], agents[0], name, {"#"})
    publish(sites[0].server, name, [("k", b"%d" % number, None) for number in range(50)])
    assert [body for _, _, body in queue.take(50)] == [b"%d" % number for number in range(50)]
    doctor = [*agents[0].command()[:3], "agent", "doctor", "--config", str(agents[0].config)]
    assert subprocess.run(doctor, capture_output=True, check=False).returncode == 0
    untrusted = agents[0].config.read_text().replace(f'tls_ca = "{authority.ca}"\n', "")
    agents[0].config.write_text(untrusted)
    done = subprocess.run(doctor, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "certificate" in done.stdout
