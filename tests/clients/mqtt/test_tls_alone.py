"""A daemon that serves MQTT over TLS only, with mosquitto_pub and mosquitto_sub."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[DaemonProcess]:
    """Clients need the server's certificate, too: it is self-signed."""
    flags = ["--kafka", "off", "--admin", "off", "--mqtt", "off", "--mqtt-tls", "127.0.0.1:0"]
    flags += ["--mqtt-tls-certificate", str(certificate), "--mqtt-tls-authority", str(certificate)]
    daemon = DaemonProcess(tmp_path_factory.mktemp("secured") / "data", flags)
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


def test_mosquittos_clients_with_a_certificate(
    secured: DaemonProcess,
    certificate: Path,
    require_tool: Callable[[str], str],
    until: Callable[..., Any],
) -> None:
    assert "mqtt" not in secured.ready
    host, port = secured.address("mqtt-tls")
    where = ["-h", host, "-p", str(port), "-V", "mqttv5", "--cafile", str(certificate)]
    known = [*where, "--cert", str(certificate), "--key", str(certificate)]
    publish = [require_tool("mosquitto_pub"), "-t", "t", "-q", "1", "-r", "-m", "hello"]
    subprocess.run([*publish, *known], check=True, timeout=PATIENCE_S)
    read = [require_tool("mosquitto_sub"), *known, "-t", "t", "-C", "1", "-W", str(PATIENCE_S)]
    assert subprocess.run(read, capture_output=True, text=True, check=True).stdout == "hello\n"
    refused = subprocess.run([*publish, *where], capture_output=True, timeout=PATIENCE_S, check=False)
    assert refused.returncode != 0
    until(lambda: "the client gave no certificate, and this listener asks for one" in secured.log())


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("--mqtt-tls-certificate", "none.pem", "--mqtt-tls-certificate none.pem: No such file or directory"),
        ("--mqtt-tls-key", "none.pem", "--mqtt-tls-key none.pem: No such file or directory"),
        ("--mqtt-tls-authority", "none.pem", "--mqtt-tls-authority none.pem: No such file or directory"),
        ("--mqtt-tls-certificate", "", "--mqtt-tls needs a certificate"),
        ("--mqtt-tls-authority", __file__, "must be PEM and fit together"),
    ],
)
def test_what_cannot_be_served_names_its_flag(
    tmp_path: Path, certificate: Path, flag: str, text: str, said: str
) -> None:
    flags = ["--kafka", "off", "--admin", "off", "--mqtt", "off", "--mqtt-tls", "127.0.0.1:0"]
    given = {"--mqtt-tls-certificate": str(certificate), flag: text}
    daemon = DaemonProcess(tmp_path / "data", [*flags, *(part for pair in given.items() for part in pair)])
    with pytest.raises(DaemonFailed) as failed:
        daemon.start()
    daemon.clean_up()
    assert said in str(failed.value)


def test_a_port_in_use_names_the_flag_of_tls(
    secured: DaemonProcess, tmp_path: Path, certificate: Path
) -> None:
    flags = ["--kafka", "off", "--admin", "off", "--mqtt", "off", "--mqtt-tls", secured.ready["mqtt-tls"]]
    daemon = DaemonProcess(tmp_path / "data", [*flags, "--mqtt-tls-certificate", str(certificate)])
    with pytest.raises(DaemonFailed) as failed:
        daemon.start()
    daemon.clean_up()
    assert f"--mqtt-tls {secured.ready['mqtt-tls']}: the port is in use" in str(failed.value)
