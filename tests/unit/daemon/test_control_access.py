"""This host's user and group, and holders of the token, may make changes through the control address."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import StartDaemon
from tests.unit.refusals import refusal

from treecast.middleware.api.daemon_client import SERVICE, DaemonClient
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import methods
from treecast.middleware.daemon import control_access, peers
from treecast.middleware.daemon.control import ControlServer
from treecast.middleware.daemon.control_access import CHANGES, READS, control_token
from treecast.middleware.daemon.status import Subject
from treecast.middleware.model.errors import Fault, TreecastError

NOBODY = 65534


def test_every_call_either_looks_or_changes() -> None:
    assert {method.name for method in methods(SERVICE)} == READS | CHANGES
    assert not READS & CHANGES


@pytest.fixture
async def foreign(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    """Returns `foreign(method, *arguments, token=...)`, which calls as if from another host."""
    monkeypatch.setattr(
        control_access.ControlAdmission.__init__, "__defaults__", (lambda peer, port: False, None)
    )
    token = JoinToken(subject.cluster.cluster_id, 1, b"k" * 32)
    server = ControlServer(token.cluster_id, Address("127.0.0.1", 0), None, None, token)
    server.show(subject)
    await server.start()

    def call(name: str, arguments: tuple[Any, ...], token: JoinToken | None) -> Any:
        with DaemonClient(str(server.address), timeout=20, token=token) as client:
            return getattr(client, name)(*arguments)

    async def ask(name: str, *arguments: Any, token: JoinToken | None = None) -> Any:
        return await asyncio.to_thread(call, name, arguments, token)

    yield ask
    await server.close(0.0)


async def test_from_another_host_everybody_may_look(foreign: Callable[..., Any]) -> None:
    assert [topic.name for topic in await foreign("list_topics")] == ["orders"]
    assert (await foreign("describe_topic", "orders")).topic.partitions == 2


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("create_topic", ("t",)),
        ("delete_topic", ("orders",)),
        ("alter_topic", ("orders", {"retention.ms": "1"})),
        ("create_partitions", ("orders", 3)),
        ("delete_group", ("g",)),
    ],
)
async def test_from_another_host_a_change_needs_the_token(
    foreign: Callable[..., Any], subject: Subject, call: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TreecastError, match=r"needs the daemon's token: give --token @FILE") as caught:
        await foreign(call, *arguments)
    assert caught.value.fault is Fault.POLICY_VIOLATION
    assert dict(subject.cluster.definitions.topics())["orders"].partitions == 2
    assert set(subject.cluster.definitions.topics()) == {"orders"}


async def test_with_the_token_everything_may_be_done(foreign: Callable[..., Any], subject: Subject) -> None:
    token = JoinToken(subject.cluster.cluster_id, 1, b"k" * 32)
    assert (await foreign("create_topic", "t", 3, token=token)).partitions == 3
    assert len(await foreign("list_topics", token=token)) == 2
    with refusal(Fault.TOPIC_EXISTS):
        await foreign("create_topic", "t", token=token)
    await foreign("delete_topic", "orders", token=token)
    assert set(subject.cluster.definitions.topics()) == {"t"}


async def test_another_clusters_token_is_refused(foreign: Callable[..., Any], subject: Subject) -> None:
    for wrong in (JoinToken(subject.cluster.cluster_id, 1, b"x" * 32), JoinToken("other", 1, b"k" * 32)):
        for call, *arguments in (("create_topic", "t"), ("list_topics",)):
            with refusal(Fault.POLICY_VIOLATION):
                await foreign(call, *arguments, token=wrong)
    assert set(subject.cluster.definitions.topics()) == {"orders"}


async def test_without_a_key_a_token_is_refused_before_anything_is_done(subject: Subject) -> None:
    server = ControlServer(subject.cluster.cluster_id, Address("127.0.0.1", 0), None)
    server.show(subject)
    await server.start()
    token = JoinToken(subject.cluster.cluster_id, 1, b"k" * 32)

    def create() -> None:
        with DaemonClient(str(server.address), timeout=20, token=token) as client:
            client.create_topic("t")

    with refusal(Fault.POLICY_VIOLATION):
        await asyncio.to_thread(create)
    assert set(subject.cluster.definitions.topics()) == {"orders"}
    await server.close(0.0)


# --- the owner of a connection


def test_the_kernel_says_whose_a_local_connection_is() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((host, 0))
            listener.listen()
            port = listener.getsockname()[1]
            with socket.create_connection((host, port)) as client:
                place = ip_address(host), client.getsockname()[1]
                assert peers.socket_user(place, port) == os.geteuid()
                assert peers.socket_user(place, port + 1) is None
                text = f"ipv4:{host}" if family is socket.AF_INET else "ipv6:%5B::1%5D"
                assert peers.is_own(f"{text}:{place[1]}", port)
            assert peers.socket_user(place, port) is None


@pytest.mark.parametrize(
    "peer", ["", "ipv4:10.9.9.9:1", "ipv6:[2001:db8::1]:1", "ipv4:nonsense", "ipv4:127.0.0.1:", "vsock:1:2"]
)
def test_who_is_not_of_this_host_is_not_own(peer: str) -> None:
    assert not peers.is_own(peer, 1)


def test_a_unix_socket_is_guarded_by_its_mode() -> None:
    assert peers.is_own("unix:", 1)
    assert peers.is_own("unix:/run/treecast/control.sock", 1)


AS_NOBODY = f"""
import os, sys
from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.model.errors import TreecastError
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
address, token = sys.argv[1], JoinToken.parse(sys.argv[2]) if sys.argv[2:] else None
try:
    with DaemonClient(address, timeout=20, token=token) as client:
        print(len(client.list_topics()))
        client.create_topic("t")
except (TreecastError, OSError) as error:
    print(error)
"""


def as_nobody(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *arguments], check=False, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_the_host_needs_the_token(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    looked, why = as_nobody(daemon.control)
    assert looked == "0"
    assert "needs the daemon's token" in why
    assert as_nobody(daemon.control, (daemon.data / "control-token").read_text()) == ["0"]
    with DaemonClient(daemon.control) as client:
        assert [topic.name for topic in client.list_topics()] == ["t"]
        client.delete_topic("t")  # the daemon's own user needs no token
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(str(daemon.runtime_dir / "control.sock"))
    with DaemonClient(f"unix:{daemon.runtime_dir / 'control.sock'}") as client:
        client.create_topic("u")


# --- the token of a host alone


def test_a_host_alone_has_a_token_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    made = control_token(tmp_path, "cluster-1")
    assert control_token(tmp_path, "cluster-1") == made
    assert (tmp_path / "control-token").stat().st_mode & 0o777 == 0o600
    assert control_token(tmp_path, "cluster-2").cluster_id == "cluster-2"


def test_the_command_takes_a_token(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon()
    command = [sys.executable, "-m", "treecast.middleware.cli", "topics", "create", "t"]

    def run(*more: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
        given = {**os.environ, "TREECAST_CONTROL": daemon.control, **(environment or {})}
        done = subprocess.run([*command, *more], check=False, capture_output=True, text=True, env=given)
        return done.returncode, done.stderr

    wrong = tmp_path / "wrong"
    wrong.write_text(JoinToken("other", 1, b"k" * 32).format())
    assert "cannot be read: No such file" in run("--token", "@/nowhere")[1]
    assert "begins with" in run("--token", "secret")[1]
    code, text = run("--token", f"@{wrong}")
    assert code == 1
    assert "belongs to cluster 'other'" in text
    own = f"@{daemon.data / 'control-token'}"
    assert run(environment={"TREECAST_TOKEN": own})[0] == 0
