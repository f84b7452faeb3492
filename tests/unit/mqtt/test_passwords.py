"""Mosquitto's password files."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.mqtt.face import MemoryHost

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Connack, Connect
from treecast.shims.mqtt.settings import MqttSettings
from treecast.shims.passwords import PasswordError, Passwords


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]) -> Passwords:
    """A file with anna's password `secret` and ben's `word`."""
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


def argon2id(password: bytes, memory: int = 64, passes: int = 1, lanes: int = 1) -> str:
    """Hashes as mosquitto_passwd 2.1 does, with another function of the library than the reader uses."""
    low_level = pytest.importorskip("argon2.low_level", reason="argon2-cffi comes with the extra `test`")
    made = low_level.hash_secret(password, b"saltsaltsalt", passes, memory, lanes, 32, low_level.Type.ID)
    return str(made.decode())


def test_argon2id_is_understood() -> None:
    found = Passwords(f"anna:{argon2id(b'secret')}\nben:{argon2id(b'word', 128, 2, 2)}")
    assert found.fits("anna", b"secret")
    assert found.fits("ben", b"word")
    assert not found.fits("anna", b"word")


@pytest.mark.parametrize(
    ("old", "new"),
    [("m=64", "m=999999"), ("t=1", "t=99999999"), ("p=1", "p=99"), ("m=64,t=1", "m=262144,t=5")],
)
def test_argon2id_that_costs_too_much_is_refused(old: str, new: str) -> None:
    with pytest.raises(PasswordError, match=r"line 1: argon2id with m=.* costs too much for each log-in"):
        Passwords(f"anna:{argon2id(b'secret').replace(old, new)}")


def test_without_its_library_argon2id_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"anna:{argon2id(b'secret')}"
    monkeypatch.setitem(sys.modules, "argon2.low_level", None)
    with pytest.raises(PasswordError) as refused:
        Passwords(line)
    assert "line 1: argon2id needs argon2-cffi: pip install 'treecast[argon2]'" in str(refused.value)
    assert "mosquitto_passwd -H sha512-pbkdf2" in str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("anna:$2y$10$YQ==", "line 1: the password is kept in $2y$; known are $7$, $6$, $argon2id$"),
        ("anna:$YQ==", "line 1: the password is kept in another way; known are"),
        ("anna:secret", "line 1 is none that mosquitto_passwd writes: expected NAME:$..."),
        ("anna:$7$101$YQ==", "line 1 is no $7$ that mosquitto_passwd writes"),
    ],
)
def test_a_refused_line_says_what_is_wrong(line: str, said: str) -> None:
    with pytest.raises(PasswordError) as refused:
        Passwords(line)
    assert said in str(refused.value)


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
        "a:$7$\u0661$YQ==$YQ==",
        "a:$argon2id$v=19$m=64,t=1,p=1$YQ",
        "a:$argon2id$v=16$m=64,t=1,p=1$YQ$YQ",
        "a:$argon2id$v=19$m=64,t=1$YQ$YQ",
        "a:$argon2id$v=19$m=64,t=0,p=1$c2FsdHNhbHQ$YQ",
    ],
)
def test_other_lines_are_refused_and_not_shown(line: str) -> None:
    with pytest.raises(PasswordError, match="line 2") as refused:
        Passwords(f"# users\n{line}")
    assert "YQ==" not in str(refused.value)
