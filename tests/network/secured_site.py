"""Two daemons in a network namespace, what their packets show to who listens, and the admin address.

    unshare -n python secured_site.py FOLDER secured|open

It prints JSON: whether the words of a message were seen on the wire, and what the admin address answers to
callers without and with a certificate.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer

from treecast.middleware.daemon.process import DaemonProcess, split_address

ADDRESS = "10.9.0.1"
WORDS = b"words that nobody else may read"
PASSWORD = "a password of the administrator"  # nosec B105
_ALL = 3  # ETH_P_ALL


class Listening:
    """Keeps all bytes to or from ADDRESS that cross the loopback interface of the namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        self._socket.bind(("lo", _ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.heard: list[bytes] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        own = socket.inet_aton(ADDRESS)
        while True:
            packet = self._socket.recv(65_535)
            if own in packet[26:34]:
                self.heard.append(packet)


def treecast(*words: str) -> str:
    command = [sys.executable, "-m", "treecast.middleware.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def log_in(daemon: DaemonProcess, secured: bool) -> dict[str, object]:
    found: dict[str, object] = {"bootstrap_servers": daemon.kafka}
    if secured:
        found |= {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "admin",
            "sasl_plain_password": PASSWORD,
        }
    return found


def asked(daemon: DaemonProcess, trust: Path | None) -> str:
    """Returns the first line of the admin address's answer, or that there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if trust is not None:
        context.load_cert_chain(trust / "host.crt", trust / "host.key")
    try:
        with (
            socket.create_connection(split_address(daemon.admin), 5) as plain,
            context.wrap_socket(plain) as secure,
        ):
            secure.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return secure.recv(1000).partition(b"\r\n")[0].decode() or "nothing"
    except OSError:
        return "nothing"


def run(folder: Path, secured: bool) -> dict[str, object]:
    flags = ["--fabric", f"{ADDRESS}:0", "--amqp", "off", "--mqtt", "off", "--stare", "off"]
    token, listening = ["--join-token", f"@{folder / 'token'}"], Listening()
    (folder / "password").write_text(PASSWORD)
    if secured:
        made = ("--name", "h1", "--address", ADDRESS, "--password-file", str(folder / "password"))
        treecast("init", "--secure", "--data", str(folder / "h1"), *made)
    first = DaemonProcess(folder / "h1", ["--name", "h1", "--admin", f"{ADDRESS}:0", *flags]).start()
    try:
        path = folder / "h1" / "join-token"
        text = treecast("token", "create", "--data", str(folder / "h1")) if secured else path.read_text()
        (folder / "token").write_text(text)
        second = DaemonProcess(
            folder / "h2", ["--name", "h2", "--join", first.control, *token, *flags]
        ).start()
        try:
            return looked_at(folder, secured, first, second, listening)
        finally:
            second.stop()
    finally:
        first.stop()


def looked_at(
    folder: Path, secured: bool, first: DaemonProcess, second: DaemonProcess, listening: Listening
) -> dict[str, object]:
    producer = KafkaProducer(**log_in(first, secured))
    producer.send("orders", WORDS).get(20)
    consumer = KafkaConsumer(
        "orders", **log_in(second, secured), auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    assert next(consumer).value == WORDS
    for _ in range(20):  # by then the second host has a replica, which is fed by segments
        producer.send("orders", WORDS).get(20)
        assert next(consumer).value == WORDS
        time.sleep(0.02)
    heard = b"".join(listening.heard)
    return {
        "packets": len(listening.heard),
        "seen": WORDS in heard,
        "stranger": asked(first, None),
        "host": asked(first, folder / "h2" / "trust" if secured else None),
    }


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2] == "secured")))
