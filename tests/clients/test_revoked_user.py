"""A user that is deleted gets nothing new at any face within a second, on connections that were open."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.network.pulse import Place, Pulse

from treecast.middleware.broker.access import Content, User
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.users_file import change_users
from treecast.middleware.model.scram import SALT_BYTES, SHA256, Verifier, verifier

pytestmark = [pytest.mark.clients, pytest.mark.slow]

FLAGS = ("--stare", "off", "--fabric", "off", "--admin", "off")
WITHIN_S = 1.0  # what the documentation promises
LOAD_S = 2.0


def start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def password_of(name: str) -> str:
    return f"the password of {name}"


def with_administrators(content: Content) -> Content:
    made = {name: User(name, verifiers(name), admin=True) for name in ("root", "alice")}
    return msgspec.structs.replace(content, users=made)


def verifiers(name: str) -> dict[str, Verifier]:
    return {SHA256: verifier(SHA256, password_of(name).encode(), bytes(SALT_BYTES))}


def test_all_faces(tmp_path: Path) -> None:
    users = tmp_path / "data" / "users.toml"
    users.parent.mkdir()
    change_users(users, with_administrators)
    daemon = DaemonProcess(tmp_path / "data", FLAGS).start()
    try:
        faces = {face: daemon.ready[face] for face in ("kafka", "mqtt", "amqp")}
        alice, root = (Place(**faces, user=name, password=password_of(name)) for name in ("alice", "root"))
        receiver, sender = Pulse(start, "receive", alice), Pulse(start, "send", root)
        receiver.flows(*faces)
        time.sleep(LOAD_S)
        command = ["users", "delete", "alice", "--file", str(users)]
        subprocess.run([sys.executable, "-m", "treecast.middleware.cli", *command], check=True)
        deleted = os.stat(users).st_ctime  # the command itself ends later
        time.sleep(max(0.0, deleted + WITHIN_S + LOAD_S - time.time()))
        acknowledged, received = sender.end(), receiver.end()
    finally:
        daemon.stop()
        daemon.clean_up()
    last = {face: max(sent for _, sent, _ in found) - deleted for face, found in received.items()}
    print("seconds after the deletion, of the newest message:", last)
    assert set(last) == {"kafka", "mqtt", "amqp"}
    assert max(last.values()) < WITHIN_S, last
    for face, numbers in acknowledged.items():  # the load went on
        assert len(numbers) > len(received[face]), face
