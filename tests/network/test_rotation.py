"""All keys and certificates are changed while all faces are under load between hosts: nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.authority import Authority
from tests.network.conftest import StartLab
from tests.network.lan import switch, until
from tests.network.secured_hosts import HOSTS, TLS_FACES, SecuredHosts

from treecast.middleware.api import trust_client
from treecast.middleware.api.trust import Trust, own_identity
from treecast.middleware.dataplane.lab.namespaces import inside

pytestmark = pytest.mark.slow

READ = "certificate read again"
IN_USE = "key of segments changed"
FACES = ("kafka", "mqtt", "amqp")


class Rotation:
    """Changes keys and certificates of hosts that run. Each step returns when the new ones are in use."""

    def __init__(self, hosts: SecuredHosts, authorities: list[Authority]) -> None:
        self._hosts = hosts
        self._authorities = authorities
        self._made = 0

    def certificate(self, host: str, authority: int = 0) -> Path:
        """Makes another certificate for the faces of a host."""
        self._made += 1
        return self._authorities[authority].signs(f"{host}-{self._made}", f"/CN={host}")

    def cluster_key(self) -> None:
        """The key of segments, from which those of all streams and epochs are derived."""
        said = {host: self._hosts.log(host).count(IN_USE) for host in HOSTS}
        self._hosts.run("keys", "rotate")
        for host, before in said.items():
            until(lambda host=host, old=before: self._hosts.log(host).count(IN_USE) > old, f"keys of {host}")

    def host_certificate(self, host: str) -> None:
        """As a host renews it, by a call of the authority."""
        data = self._hosts.folder / host
        said = self._hosts.log(host).count(READ)
        before, own = own_identity(data).serial, [self._hosts.lab.ipv4(host)]
        inside(
            self._hosts.lab.namespace(host),
            lambda: asyncio.run(trust_client.renew(self._hosts.control, Trust(data), own)),
        )
        assert own_identity(data).serial != before
        until(lambda: self._hosts.log(host).count(READ) > said, f"the certificate of {host} is read again")

    def face_certificate(self, host: str, authority: int = 0, *, hang_up: bool = False) -> None:
        """By a changed file, which the daemon notices, or SIGHUP."""
        file = self._hosts.folder / f"{host}.pem"
        made = self.certificate(host, authority)
        wanted = ssl.PEM_cert_to_DER_cert(made.read_text()[made.read_text().index("-----BEGIN CERT") :])
        made.replace(file)
        if hang_up:
            self._hosts.daemons[host].send_signal(signal.SIGHUP)
        for face in FACES:
            until(lambda face=face: self.shown(host, face) == wanted, f"the certificate of {face} at {host}")

    def shown(self, host: str, face: str) -> bytes | None:
        """Returns the certificate that a new connection is shown."""

        def ask() -> bytes | None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with (
                socket.create_connection(("127.0.0.1", TLS_FACES[face]), 10) as plain,
                context.wrap_socket(plain) as secure,
            ):
                return secure.getpeercert(binary_form=True)

        return inside(self._hosts.lab.namespace(host), ask)


def rotate_all(rotation: Rotation) -> None:
    rotation.cluster_key()
    rotation.host_certificate("h2")
    rotation.face_certificate("h1", hang_up=True)
    rotation.face_certificate("h2")
    rotation.cluster_key()
    rotation.host_certificate("h3")
    rotation.face_certificate("h1", authority=1)  # another authority; clients trust both meanwhile
    rotation.face_certificate("h2", authority=1, hang_up=True)


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_nothing_is_lost(
    lab: StartLab, tmp_path: Path, require_tool: Callable[[str], str], times: int
) -> None:
    """Neither on open connections nor on those that begin meanwhile."""
    authorities = [Authority(tmp_path, require_tool("openssl"), name) for name in ("first", "second")]
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("".join(one.path.read_text() for one in authorities))
    made = lab(switch(HOSTS))
    for host in HOSTS:
        authorities[0].signs(host, f"/CN={host}")
    hosts = SecuredHosts(made, tmp_path, tls=lambda host: tmp_path / f"{host}.pem")
    receiver = hosts.pulse("h2", "receive", str(trusted))
    sender = hosts.pulse("h1", "send", str(trusted))
    rotation = Rotation(hosts, authorities)
    began = time.monotonic()
    for _ in range(times):
        rotate_all(rotation)
    took = time.monotonic() - began
    acknowledged, received = sender.end(), receiver.end()
    shown = {face: (len(acknowledged[face]), len(received[face])) for face in FACES}
    print(f"{times} rotations of all in {took:.0f} s; acknowledged and received:", shown)
    for face in FACES:
        come = Counter(number for number, _, _ in received[face])
        assert acknowledged[face], face
        assert set(acknowledged[face]) - come.keys() == set(), face
        assert [number for number, count in come.items() if count > 1] == [], face
