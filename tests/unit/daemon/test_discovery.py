"""Addresses, and a client's search for this host's daemon."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.api.discovery import (
    DEFAULT_PORTS,
    Address,
    find_control,
    find_face,
    is_live,
    runtime_dirs,
)
from treecast.middleware.daemon.runtime_dir import RuntimeDir


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[RuntimeDir]:
    opened = RuntimeDir.open(str(tmp_path / "run"), {})
    assert opened is not None
    yield opened
    opened.remove()


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "[::1]:0", "host.example:65535"])
def test_an_address_is_read_and_written(text: str) -> None:
    assert str(Address.parse(text)) == text


@given(st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True), st.integers(0, 65535))
def test_addresses_round_trip(host: str, port: int) -> None:
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:-1", "host:1x", "::1:1", "h:99999", "h:\u0661"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|brackets|number"):
        Address.parse(text)


def test_a_wildcard_is_reached_on_loopback() -> None:
    assert str(Address.parse("0.0.0.0:1").reachable) == "127.0.0.1:1"
    assert str(Address.parse("[::]:1").reachable) == "[::1]:1"


def test_where_sockets_may_be() -> None:
    assert runtime_dirs({"TREECAST_RUNTIME_DIR": "/x", "XDG_RUNTIME_DIR": "/y"}) == [Path("/x")]
    assert runtime_dirs({"XDG_RUNTIME_DIR": "/y"}) == [Path("/run/treecast"), Path("/y/treecast")]


def test_the_variable_comes_first() -> None:
    found = find_face("kafka", {"TREECAST_KAFKA": "0.0.0.0:19092"})
    assert (str(found), found.source, found.socket) == ("127.0.0.1:19092", "TREECAST_KAFKA", None)
    with pytest.raises(ValueError, match="TREECAST_KAFKA='nonsense'"):
        find_face("kafka", {"TREECAST_KAFKA": "nonsense"})


@pytest.mark.parametrize("value", ["off", "", "127.0.0.1:0"])
def test_a_variable_that_names_no_port_is_passed_over(value: str, tmp_path: Path) -> None:
    environment = {"TREECAST_KAFKA": value, "TREECAST_RUNTIME_DIR": str(tmp_path)}
    assert find_face("kafka", environment).address == Address("127.0.0.1", 9092)


def test_then_the_socket_and_the_address_beside_it(runtime: RuntimeDir) -> None:
    environment = {"TREECAST_RUNTIME_DIR": str(runtime.path)}
    path = runtime.claim("kafka")
    assert path is not None
    with listen(path):
        runtime.publish("kafka", Address("0.0.0.0", 4711))
        found = find_face("kafka", environment)
        assert (str(found), found.socket) == ("127.0.0.1:4711", path)
        assert path.stat().st_mode & 0o777 == 0o660
    assert find_face("kafka", environment).address == Address("127.0.0.1", DEFAULT_PORTS["kafka"])


def test_last_the_default_port(tmp_path: Path) -> None:
    found = find_control({"TREECAST_RUNTIME_DIR": str(tmp_path)})
    assert (str(found), found.source) == ("127.0.0.1:7671", "the default port")


# --- the runtime directory


def test_a_stale_socket_is_replaced_and_a_live_one_left_alone(
    runtime: RuntimeDir, caplog: pytest.LogCaptureFixture
) -> None:
    path = runtime.path / "kafka.sock"
    with listen(path):
        assert is_live(path)
        assert runtime.claim("kafka") is None
        assert "another daemon listens" in caplog.text
        runtime.publish("kafka", Address("127.0.0.1", 1))
        assert not (runtime.path / "kafka.address").exists()
        assert path.exists()
    assert not is_live(path)
    assert runtime.claim("kafka") == path
    assert not path.exists()


def test_only_what_was_made_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "other.sock").write_text("")
    runtime = RuntimeDir.open(str(folder), {})
    assert runtime is not None
    path = runtime.claim("kafka")
    assert path is not None
    listen(path).close()
    runtime.publish("kafka", Address("127.0.0.1", 1))
    runtime.remove()
    assert [entry.name for entry in folder.iterdir()] == ["other.sock"]


def test_a_directory_of_its_own_goes_in_the_end(tmp_path: Path) -> None:
    runtime = RuntimeDir.open("", {"TREECAST_RUNTIME_DIR": str(tmp_path / "run")})
    assert runtime is not None
    assert runtime.path.stat().st_mode & 0o777 == 0o750
    runtime.remove()
    assert not runtime.path.exists()


def test_without_a_usable_directory_it_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert RuntimeDir.open(str(tmp_path / "missing" / "run"), {}) is None
    assert "no Unix sockets" in caplog.text


def test_a_path_too_long_for_a_socket_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runtime = RuntimeDir.open(str(tmp_path / ("x" * 120)), {})
    assert runtime is not None
    assert runtime.claim("kafka") is None
    assert "too long" in caplog.text


def test_a_users_own_daemon_is_found_before_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treecast.middleware.api.discovery._SYSTEM_RUNTIME_DIR", str(tmp_path / "host"))
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "user")}
    (tmp_path / "user").mkdir()
    for folder, port in (("host", 1), ("user/treecast", 2)):
        runtime = RuntimeDir.open(str(tmp_path / folder), {})
        assert runtime is not None
        path = runtime.claim("kafka")
        assert path is not None
        listener = listen(path)
        runtime.publish("kafka", Address("127.0.0.1", port))
        assert find_face("kafka", environment).address.port == port
        if folder == "host":
            assert find_face("kafka", {}).address.port == 1
            kept = listener
        else:
            listener.close()
    assert find_face("kafka", environment).address.port == 1
    kept.close()


def test_the_directory_of_another_user_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, and its daemon would put its sockets among those of a service."""
    monkeypatch.setattr("treecast.middleware.api.discovery._SYSTEM_RUNTIME_DIR", str(tmp_path / "host"))
    (tmp_path / "host").mkdir()
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    taken = RuntimeDir.open("", environment)
    assert taken is not None
    assert taken.path == tmp_path / "host"
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    taken = RuntimeDir.open("", environment)
    assert taken is not None
    assert taken.path == tmp_path / "treecast"
    named = RuntimeDir.open("", {"TREECAST_RUNTIME_DIR": str(tmp_path / "host")})
    assert named is not None
    assert named.path == tmp_path / "host"
