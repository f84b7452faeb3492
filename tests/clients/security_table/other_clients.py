"""Clients of MQTT and AMQP: each publishes one message with an acknowledgement, and says what it was told."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from typing import Any

from treecast.middleware.daemon.process import split_address

from .case import WORKS, Case, attempt, named

_PATIENCE_S = 12.0


class Told(Exception):
    """The reason that a client gives in a callback."""


def context_of(case: Case) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=case.authority)
    made.check_hostname = False
    if case.certificate:
        made.load_cert_chain(case.certificate)
    return made


# --- MQTT


def paho(case: Case) -> str:
    import paho.mqtt.client as mqtt

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.tls_set_context(context_of(case))
    if case.user:
        client.username_pw_set(case.user, case.password)
    said, answered = [""], threading.Event()

    def note(where: str) -> Any:
        def noted(*arguments: Any) -> None:
            code = arguments[-2]
            if code.is_failure or where == "on_disconnect":
                said[0] = said[0] or f"{where}: {code}"
            answered.set()

        return noted

    client.on_connect, client.on_publish = note("on_connect"), note("on_publish")
    client.on_disconnect = note("on_disconnect")

    def check(what: str) -> None:
        if not answered.wait(_PATIENCE_S) or said[0]:
            raise Told(said[0] or f"no answer to {what}")
        answered.clear()

    def publish() -> None:
        client.publish(case.topic, b"x", 1)
        check("PUBLISH")

    try:
        client.connect(*split_address(case.mqtt))
        client.loop_start()
        check("CONNECT")
        return attempt(case, publish)
    except Told as told:
        return str(told)
    except Exception as error:  # whatever it raises is what the table is to show
        return named(error, getattr(error, "reason", ""))


def aiomqtt(case: Case) -> str:
    """Its `publish` returns after any PUBACK: the reason in it is read by what it is made of, paho."""
    import aiomqtt as module

    host, port = split_address(case.mqtt)
    login = {"username": case.user, "password": case.password} if case.user else {}

    async def run() -> str:
        version = module.ProtocolVersion.V5
        async with module.Client(
            host, port, tls_context=context_of(case), protocol=version, timeout=_PATIENCE_S, **login
        ) as client:
            refused: list[str] = []
            told = client._client.on_publish  # its own, which it calls for every PUBACK

            def noted(*arguments: Any) -> None:
                if arguments[3].is_failure:
                    refused.append(str(arguments[3]))
                told(*arguments)

            client._client.on_publish = noted
            await client.publish(case.topic, b"x", 1)
            if not case.revoked:
                return f"nothing; PUBACK has: {refused[0]}" if refused else WORKS
            print("published", flush=True)
            await asyncio.to_thread(input)
            for _ in range(100):
                await client.publish(case.topic, b"x", 1)
                await asyncio.sleep(0.1)
            return "goes on"

    try:
        return asyncio.run(run())
    except Exception as error:  # whatever it raises is what the table is to show
        return named(error, getattr(error, "rc", ""))


def mosquitto_pub(case: Case) -> str:
    host, port = split_address(case.mqtt)
    command = [str(shutil.which("mosquitto_pub")), "-h", host, "-p", str(port), "-V", "5", "-q", "1"]
    command += ["--cafile", case.authority, "--insecure", "-t", case.topic]
    command += ["-u", case.user, "-P", case.password] if case.user else []
    command += ["--cert", case.certificate, "--key", case.certificate] if case.certificate else []
    if not case.revoked:
        done = subprocess.run(
            [*command, "-m", "x"], capture_output=True, text=True, check=False, timeout=3 * _PATIENCE_S
        )
        said = [line for line in (done.stdout + done.stderr).splitlines() if line]
        return f"{'; '.join(said[:2])} (exit code {done.returncode})" if done.returncode or said else WORKS
    lines = subprocess.Popen(
        [*command, "-l"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert lines.stdin is not None
    assert lines.stdout is not None

    def publish() -> None:
        lines.stdin.write("x\n")  # type: ignore[union-attr]
        lines.stdin.flush()  # type: ignore[union-attr]

    try:
        attempt(case, publish)
        out, _ = lines.communicate("x\n", timeout=_PATIENCE_S)
    except OSError:  # it has ended
        out = lines.stdout.read()
    except subprocess.TimeoutExpired:
        lines.kill()
        out = "tries again for ever: " + lines.stdout.read()
    said = [line for line in out.splitlines() if line and "Client" not in line]
    return WORKS if not said and lines.wait() == 0 else f"{'; '.join(said[:2])} (exit code {lines.wait()})"


# --- AMQP


def pika(case: Case) -> str:
    import pika as module

    host, port = split_address(case.amqp)
    login = (
        module.credentials.ExternalCredentials()
        if case.certificate
        else module.PlainCredentials(case.user, case.password)
    )
    options = module.SSLOptions(context_of(case), host)
    parameters = module.ConnectionParameters(host, port, credentials=login, ssl_options=options)
    try:
        channel = module.BlockingConnection(parameters).channel()
        channel.confirm_delivery()
        return attempt(case, lambda: channel.basic_publish("amq.topic", case.topic, b"x"))
    except Exception as error:  # whatever it raises is what the table is to show
        return named(error, getattr(error, "reply_code", ""))


def aio_pika(case: Case) -> str:
    import aio_pika as module

    host, port = split_address(case.amqp)
    query = "?auth=external" if case.certificate else ""
    login = f"{case.user}:{case.password.replace(' ', '%20')}@" if case.user else ""
    with asyncio.Runner() as runner:

        async def publish_by(exchange: Any) -> None:
            await exchange.publish(module.Message(b"x"), case.topic, mandatory=False)

        async def start() -> Any:
            connection = await module.connect(
                f"amqps://{login}{host}:{port}/{query}", ssl_context=context_of(case), timeout=_PATIENCE_S
            )
            return await (await connection.channel()).get_exchange("amq.topic", ensure=False)

        try:
            exchange = runner.run(start())
            return attempt(case, lambda: runner.run(publish_by(exchange)))
        except Exception as error:  # whatever it raises is what the table is to show
            return named(error, getattr(error, "errno", ""))


MQTT = {"paho": paho, "aiomqtt": aiomqtt, "mosquitto_pub": mosquitto_pub}
AMQP = {"pika": pika, "aio-pika": aio_pika}
