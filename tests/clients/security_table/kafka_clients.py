"""Kafka's clients: each publishes one record, and says what it was told."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from typing import Any

from .case import Case, attempt, named

_PATIENCE_S = 12
_TOLD = re.compile(r"\b\w*(?:Authentication|Authorization|SSL|Ssl|Token)\w*(?:Error|Failed)\w*")


def protocol(case: Case) -> str:
    return "SSL" if case.certificate else "SASL_SSL"


def mechanism(case: Case) -> str:
    return "OAUTHBEARER" if case.token else "SCRAM-SHA-256"


class Noted(logging.Handler):
    """Keeps the errors that a client only logs, while it tries again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found += _TOLD.findall(record.getMessage())
        if "CERTIFICATE" in record.getMessage().upper() or "ALERT" in record.getMessage().upper():
            self.found.append("the alert of TLS")


def kafka_python(case: Case) -> str:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provided(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return case.token

    noted = Noted()
    logging.getLogger("kafka").addHandler(noted)
    options: dict[str, Any] = {
        "bootstrap_servers": case.kafka,
        "security_protocol": protocol(case),
        "ssl_cafile": case.authority,
        "ssl_check_hostname": False,
        "max_block_ms": _PATIENCE_S * 1000,
        "bootstrap_timeout_ms": _PATIENCE_S * 1000,
        "request_timeout_ms": _PATIENCE_S * 1000,
        "delivery_timeout_ms": (_PATIENCE_S + 1) * 1000,
        "retries": 0,
    }
    if case.certificate:
        options |= {"ssl_certfile": case.certificate}
    else:
        options |= {"sasl_mechanism": mechanism(case), "sasl_plain_username": case.user}
        options |= {"sasl_plain_password": case.password}
        options |= {"sasl_oauth_token_provider": Provided()} if case.token else {}
    try:
        producer = KafkaProducer(**options)
        return attempt(case, lambda: producer.send(case.topic, b"x").get(_PATIENCE_S))
    except Exception as error:  # whatever it raises is what the table is to show
        logged = [one for one in noted.found if one != type(error).__name__]
        return named(error, f"its log: {logged[-1]}" if logged else "")


def librdkafka(case: Case) -> str:
    from confluent_kafka import KafkaError, KafkaException, Producer

    told: list[str] = []
    options: dict[str, Any] = {
        "bootstrap.servers": case.kafka,
        "security.protocol": protocol(case),
        "ssl.ca.location": case.authority,
        "message.timeout.ms": _PATIENCE_S * 1000,
        "log_level": 0,
    }
    if case.certificate:
        options |= {"ssl.certificate.location": case.certificate, "ssl.key.location": case.certificate}
    else:
        options |= {"sasl.mechanism": mechanism(case)}
        options |= {"sasl.username": case.user, "sasl.password": case.password} if case.user else {}
    if case.token:
        options["oauth_cb"] = lambda _: (case.token, 2_000_000_000.0)

    def noted(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            reason = re.search(r"certificate expired|unknown ca|handshake failure", str(error))
            told.append(f"{error.name()}{f': {reason[0]}' if reason else ''}")

    producer = Producer({**options, "error_cb": noted})

    def publish() -> None:
        errors: list[KafkaError | None] = []
        producer.produce(case.topic, b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(_PATIENCE_S + 2)
        if not errors or errors[0] is not None:
            raise KafkaException(errors[0] if errors else KafkaError(KafkaError._TIMED_OUT))

    try:
        return attempt(case, publish)
    except KafkaException as error:
        name = error.args[0].name()
        return named(error, name if name != "_MSG_TIMED_OUT" or not told else told[-1])


def aiokafka(case: Case) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provided(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        async def token(self) -> str:
            return case.token

    context = ssl.create_default_context(cafile=case.authority)
    context.check_hostname = False
    options: dict[str, Any] = {"bootstrap_servers": case.kafka, "security_protocol": protocol(case)}
    if case.certificate:
        context.load_cert_chain(case.certificate)
    else:
        options |= {"sasl_mechanism": mechanism(case), "sasl_plain_username": case.user or None}
        options |= {"sasl_plain_password": case.password or None}
        options |= {"sasl_oauth_token_provider": Provided()} if case.token else {}

    noted = Noted()
    logging.getLogger("aiokafka").addHandler(noted)
    with asyncio.Runner() as runner:

        async def start() -> AIOKafkaProducer:
            made = AIOKafkaProducer(**options, ssl_context=context, request_timeout_ms=_PATIENCE_S * 1000)
            await made.start()
            return made

        try:
            producer = runner.run(start())
            return attempt(case, lambda: runner.run(producer.send_and_wait(case.topic, b"x")))
        except Exception as error:  # whatever it raises is what the table is to show
            logged = [one for one in noted.found if one != type(error).__name__]
            return named(error, f"its log: {logged[-1]}" if logged else "")


CLIENTS = {"kafka-python": kafka_python, "librdkafka": librdkafka, "aiokafka": aiokafka}
