"""Logins of a real client with its certificate, over TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PASSWORDS = "localhost:$7$1$c2FsdA==$c2FsdA==\n"  # the user's password does not matter


@pytest.fixture
def secured(
    start_daemon: Callable[..., DaemonProcess], certificate: Path, tmp_path: Path
) -> Callable[..., DaemonProcess]:
    """Starts a daemon that knows the user `localhost` and takes client certificates."""
    (tmp_path / "passwords").write_text(PASSWORDS)
    flags = ["--kafka", "off", "--mqtt", "off", "--amqp-password-file", str(tmp_path / "passwords")]
    flags += ["--amqp-tls", "127.0.0.1:0", "--amqp-tls-certificate", str(certificate)]
    flags += ["--amqp-tls-authority", str(certificate)]
    return lambda *more: start_daemon(*flags, *more)


def parameters(daemon: DaemonProcess, certificate: Path) -> pika.ConnectionParameters:
    context = ssl.create_default_context(cafile=str(certificate))
    context.load_cert_chain(certificate)
    host, port = daemon.address("amqp-tls")
    options = pika.SSLOptions(context, "localhost")
    return pika.ConnectionParameters(
        host, port, ssl_options=options, credentials=pika.credentials.ExternalCredentials()
    )


def test_pika_logs_in_by_its_certificate(
    secured: Callable[..., DaemonProcess], certificate: Path, name: Callable[[str], str]
) -> None:
    daemon = secured("--amqp-certificate-login", "common_name")
    with pika.BlockingConnection(parameters(daemon, certificate)) as connection:
        channel, queue = connection.channel(), name("q")
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, b"x", pika.BasicProperties(user_id="localhost"))
        assert channel.basic_get(queue, auto_ack=True)[2] == b"x"


def test_a_certificate_of_nobody_is_refused(
    secured: Callable[..., DaemonProcess], certificate: Path, until: Callable[..., Any]
) -> None:
    daemon = secured()  # the user is then CN=localhost
    with pytest.raises((AMQPConnectionError, ConnectionClosedByBroker)):
        pika.BlockingConnection(parameters(daemon, certificate))
    until(lambda: "Login was refused using authentication mechanism EXTERNAL" in daemon.log())
