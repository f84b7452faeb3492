"""A client id belongs to its user."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from tests.unit.mqtt.face import Client, MemoryHost

from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Connect, Disconnect, Publish, Will
from treecast.shims.mqtt.settings import MqttSettings
from treecast.shims.passwords import Passwords

USERS = ("anna", "ben", "pub")


def line(name: str) -> str:
    """Returns a line of a password file: the password is the user's name."""
    digest = base64.b64encode(hashlib.sha512(name.encode() + b"salt").digest()).decode()
    return f"{name}:$6${base64.b64encode(b'salt').decode()}${digest}"


def settings(**more: int) -> MqttSettings:
    return MqttSettings(passwords=Passwords("\n".join(map(line, USERS))), **more)


@pytest.fixture
def host(tmp_path: Path) -> MemoryHost:
    return MemoryHost(settings(), data=tmp_path / "pubsub")


def away(host: MemoryHost, user: str, version: int = V5) -> None:
    """Makes a lasting session of `user` with the id `till`, and queues a message in it."""
    lasting = {} if version == V311 else {"session_expiry": 1000}
    client = host.connected("till", version, clean=False, user=user, **lasting)
    client.subscribe("pay/#", qos=1)
    client.drop()
    host.connected("p", user="pub").publish("pay/1", b"secret", 1)
    host.end_turn()


def present(host: MemoryHost, user: str, version: int = V5) -> tuple[bool, list[bytes]]:
    """Connects `user` as `till`. Returns (whether the session was there, what it gets)."""
    lasting = {} if version == V311 else {"session_expiry": 1000}
    client = host.client(version)
    found = client.connect("till", clean=False, user=user, **lasting)
    assert found.reason == 0
    return found.session_present, [one.payload for one in client.got() if isinstance(one, Publish)]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("restarted", [False, True])
def test_nobody_gets_the_session_of_another_user(host: MemoryHost, version: int, restarted: bool) -> None:
    away(host, "anna", version)
    if restarted:
        host.crash()
    assert present(host, "ben", version) == (False, [])
    if restarted:
        host.crash()
    assert present(host, "anna", version) == (True, [b"secret"])


def test_a_client_of_the_same_id_and_another_user_goes_on(host: MemoryHost) -> None:
    anna, ben = host.connected("till", user="anna"), host.connected("till", user="ben")
    anna >> []
    again = host.connected("till", user="anna")
    (told,) = anna.got()
    assert isinstance(told, Disconnect)
    assert told.reason == codec.TAKEN_OVER
    assert ben.got() == again.got() == []
    assert host.sessions.connected == 2


def test_a_clean_start_of_another_user_ends_nothing(host: MemoryHost) -> None:
    away(host, "anna")
    ben = host.connected("till", clean=True, user="ben")
    ben.drop()
    assert present(host, "anna") == (True, [b"secret"])


def test_the_will_of_another_users_client_is_not_sent(host: MemoryHost) -> None:
    watcher = host.connected("w", user="pub")
    watcher.subscribe("gone", qos=1)
    host.connected("till", user="anna", will=Will(b"gone", b"x", 1))
    host.connected("till", user="ben")
    watcher >> []


@pytest.mark.parametrize("user", USERS[:2])
def test_owners_are_kept_when_segments_go(tmp_path: Path, user: str) -> None:
    host = MemoryHost(settings(), PubSubSettings(segment_bytes=2048), tmp_path / "pubsub")
    away(host, user)
    busy = host.connected("busy", clean=False, user="pub", session_expiry=1000)
    busy.subscribe("t", qos=1)
    for number in range(200):
        host.connected("p", user="pub").publish("t", b"%d" % number, 1)
        for packet in busy.publishes():
            busy.ack(codec.PUBACK, packet.packet_id)
    host.crash()
    for other in USERS[:2]:
        assert present(host, other)[0] is (other == user)


def test_a_session_of_nobody_goes_to_the_first_user_with_its_id_and_stays_his(tmp_path: Path) -> None:
    host = MemoryHost(data=tmp_path / "pubsub")  # as stored before there were passwords
    host.connected("till", clean=False, session_expiry=1000).subscribe("pay/#", qos=1)
    host.settings = settings()
    host.crash()
    assert present(host, "anna") == (True, [])
    assert present(host, "ben") == (False, [])
    host.crash()
    assert present(host, "anna")[0]


def test_without_passwords_a_session_of_a_user_is_nobodys_to_take(host: MemoryHost) -> None:
    away(host, "anna")
    host.settings = MqttSettings()
    host.crash()
    assert present(host, "anna") == (False, [])  # the name is not checked, so it does not count
    host.settings = settings()
    host.crash()
    assert present(host, "anna")[0]


def test_sessions_are_bounded_over_all_users(tmp_path: Path) -> None:
    host = MemoryHost(settings(max_sessions=1))
    host.connected("till", user="anna")
    refused = host.client().connect("till", user="ben")
    assert refused.reason == codec.QUOTA_EXCEEDED
    assert host.client().connect("till", user="anna").reason == 0


def test_two_users_share_no_id_that_the_server_makes_up(host: MemoryHost) -> None:
    def assigned(user: str) -> str | None:
        client: Client = host.client()
        client.send(Connect(V5, "", True, username=user, password=user.encode()))
        return client.state.client_id if client.state is not None else None

    assert len({assigned(user) for user in USERS}) == len(USERS)
