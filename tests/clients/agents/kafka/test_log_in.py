"""The agent logs in to a Kafka cluster over TLS with a certificate, by PLAIN and by SCRAM."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.core.ports import free_port
from bench.peers.kafka import run_tool
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from tests.clients.agents.authority import Authority
from tests.clients.agents.kafka.site import PATIENCE, KafkaAgent, Node, read_all

from treecast.middleware.daemon.process import DaemonProcess

USER, SECRET = "treecast", "geheim"
MECHANISMS = ("PLAIN", "SCRAM-SHA-512")  # the third one differs from the second by its hash
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{SECRET}";'


class SecuredNode(Node):
    """A node with a second listener, which asks for TLS, a client's certificate and a log-in."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.secured = f"127.0.0.1:{free_port()}"
        modules = {"plain": _PLAIN, "scram-sha-512": _SCRAM}
        super().__init__(
            folder,
            **{
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(authority.server),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.ca),
                "ssl.client.auth": "required",
                **{f"listener.name.secured.{name}.sasl.jaas.config": one for name, one in modules.items()},
            },
        )

    def _properties(self, controller: int) -> dict[str, str]:
        found = super()._properties(controller)
        for key in ("listeners", "advertised.listeners"):
            found[key] += f",SECURED://{self.secured}"
        return found

    def add_user(self) -> None:
        given = f"{MECHANISMS[1]}=[password={SECRET}]"
        run_tool("kafka-configs", "--bootstrap-server", self.bootstrap, "--alter", "--add-config", given,
                 "--entity-type", "users", "--entity-name", USER)  # fmt: skip


@pytest.fixture(scope="module")
def secured(
    java: None, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[SecuredNode]:
    started = SecuredNode(tmp_path_factory.mktemp("secured"), authority)
    try:
        started.start()
        started.add_user()
        yield started
    finally:
        started.stop()


def test_each_mechanism_over_tls(
    secured: SecuredNode,
    hosts: tuple[DaemonProcess, DaemonProcess],
    authority: Authority,
    tmp_path: Path,
) -> None:
    """One agent after another, of the same site: each goes on where the last one ended."""
    admin = KafkaAdminClient(bootstrap_servers=secured.bootstrap)
    admin.create_topics([NewTopic("secured.t", 1, 1)])
    admin.close()
    for number, mechanism in enumerate(MECHANISMS, 1):
        agent = KafkaAgent(
            "secured-site",
            tmp_path,
            secured.secured,
            hosts[0].ready["control"],
            hosts[0].data / "join-token",
            f'topics = ["secured.*"]\ngroups = ["secured.*"]\nsasl = "{mechanism}"\nuser = "{USER}"\n'
            f'password = "{SECRET}"\ntls = true\ntls_ca = "{authority.ca}"\n'
            f'tls_certificate = "{authority.client}"',
        )
        try:
            agent.start()
            agent.until(lambda now: now["serving"] and "secured.t" in now["topics"], "it follows nothing")
            producer = KafkaProducer(bootstrap_servers=hosts[1].ready["kafka"])
            assert producer.send("secured.t", mechanism.encode()).get(PATIENCE).offset == number - 1
            producer.close()
            assert [value for _, _, value in read_all(hosts[0].ready["kafka"], "secured.t", number)] == [
                one.encode() for one in MECHANISMS[:number]
            ]
            doctor = [*agent.command()[:3], "agent", "doctor", "--config", str(agent.config)]
            done = subprocess.run(doctor, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
            agent.config.write_text(agent.config.read_text().replace(SECRET, "wrong"))
            done = subprocess.run(doctor, capture_output=True, text=True, check=False)
            assert done.returncode == 1
            assert "refuses the log-in" in done.stdout, done.stdout
        finally:
            if agent.process is not None and agent.process.poll() is None:
                agent.stop()
            agent.clean_up()
            print(agent.log.read_text())
