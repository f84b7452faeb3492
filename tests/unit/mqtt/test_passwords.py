"""Password files of Mosquitto's."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.mqtt.face import MemoryHost

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Connack, Connect
from treecast.shims.mqtt.passwords import PasswordError, Passwords
from treecast.shims.mqtt.settings import MqttSettings


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]) -> Passwords:
    """anna with `secret`, ben with `word`."""
    made = tmp_path_factory.mktemp("passwords") / "file"
    tool = require_tool("mosquitto_passwd")
    subprocess.run([tool, "-c", "-b", str(made), "anna", "secret"], check=True, capture_output=True)
    subprocess.run([tool, "-b", str(made), "ben", "word"], check=True, capture_output=True)
    return Passwords("# users\n\n" + Path(made).read_text())


def test_what_mosquitto_passwd_writes_is_understood(passwords: Passwords) -> None:
    assert len(passwords) == 2
    assert passwords.fits("anna", b"secret")
    assert passwords.fits("ben", b"word")
    for name, password in (
        ("anna", b"word"),
        ("carl", b"secret"),
        (None, b"secret"),
        ("anna", None),
        ("", b""),
    ):
        assert not passwords.fits(name, password)


@pytest.mark.parametrize("version", [V311, V5])
def test_only_known_users_are_served(passwords: Passwords, version: int) -> None:
    host = MemoryHost(MqttSettings(passwords=passwords))
    refused = codec.BAD_CREDENTIALS if version == V5 else 4
    for name, password, reason in (("anna", b"secret", 0), ("anna", b"x", refused), (None, None, refused)):
        client = host.client(version)
        client.send(Connect(version, "c", True, username=name, password=password))
        answer = client.got()[0]
        assert isinstance(answer, Connack)
        assert answer.reason == reason


def test_a_plain_sha512_is_understood() -> None:
    digest = base64.b64encode(hashlib.sha512(b"word" + b"salt").digest()).decode()
    found = Passwords(f"ben:$6$c2FsdA==${digest}")
    assert found.fits("ben", b"word")
    assert not found.fits("ben", b"wrong")


@pytest.mark.parametrize(
    "line",
    [
        "anna",
        "anna:secret",
        ":$7$1$YQ==$YQ==",
        "a:$7$0$YQ==$YQ==",
        "a:$7$9999999$YQ==$YQ==",
        "a:$7$x$YQ==$YQ==",
        "a:$7$1$*$YQ==",
        "a:$6$YQ==$",
        "a:$5$YQ==$YQ==",
    ],
)
def test_other_lines_are_refused_and_not_shown(line: str) -> None:
    with pytest.raises(PasswordError, match="line 2") as refused:
        Passwords(f"# users\n{line}")
    assert "YQ==" not in str(refused.value)
