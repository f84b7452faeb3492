"""The agent's lock at its broker: a retained message that names the site, which the broker removes as the
agent's will when the agent has gone. A second agent of the cluster that finds another site's name refuses.

`look` is also how `treecast agent doctor` asks a broker about itself, under a client id of its own.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl

from msgspec import Struct

from treecast.agents.common.status import AgentCounters
from treecast.middleware.api.discovery import Address
from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.model.counters import PubSubCounters
from treecast.shims.mqtt.codec import UNSUPPORTED_VERSION, V5, V311
from treecast.shims.mqtt.session_output import Edge, Outputs
from treecast.shims.mqtt.sessions import Sessions
from treecast.shims.mqtt.settings import MqttSettings

from .codec import LOCKS
from .connection import ConnectionLost, MqttConnection, Spoken
from .session import ClientSession, Granted, LogIn, missing

_SECONDS = 10.0
_CALM = 0.2  # seconds in which the retained messages come that the answer to SUBSCRIBE announces


class Looked(Struct):
    """The answers of a broker. `speaks`: 5, or 3 for 3.1.1. `holder`: the site that has the lock, empty if
    nobody. `refused`: filters that the broker does not give out, as text."""

    speaks: int
    holder: str = ""
    refused: str = ""


def lock_topic(cluster: str) -> str:
    """Returns the topic of the lock. It does not begin with `$`: not every broker takes such from clients."""
    return f"{LOCKS.decode()}{cluster}"


class _Reader(Subscriber):
    """Keeps the message of the lock."""

    def __init__(self, hub: PubSub, lock: bytes) -> None:
        super().__init__(1)
        self.holder = ""
        hub.subscribe(Subscription(self, lock, 2, False, True))

    def take(self, message: Message, target: Target) -> None:
        self.holder = message.payload.decode("utf-8", "replace")


class _Listening:
    """Implements `connection.Listener` for one who only asks."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Granted | ConnectionLost] = asyncio.Queue()

    def granted(self, event: Granted) -> None:
        self.answers.put_nowait(event)

    def closed(self, reason: str) -> None:
        self.answers.put_nowait(ConnectionLost(reason))


async def look(
    address: Address,
    tls: ssl.SSLContext | None,
    log_in: LogIn,
    cluster: str,
    filters: dict[bytes, int],
    *,
    falls_back: bool,
) -> Looked:
    """Asks the broker. `filters`: those whose subscription is tried. `falls_back`: to 3.1.1. Raises
    ConnectionLost."""
    try:
        return await _look(address, tls, log_in, cluster, filters)
    except ConnectionLost as error:
        if not falls_back or log_in.version == V311 or not lacks_version(error):
            raise
    return await _look(address, tls, older(log_in), cluster, filters)


def lacks_version(error: ConnectionLost) -> bool:
    """Whether a broker refuses version 5: with its reason, or, as old ones do, without any answer."""
    return error.reason in (UNSUPPORTED_VERSION, 1) or str(error) == "the broker closed the connection"


def older(log_in: LogIn) -> LogIn:
    """Returns the same for version 3.1.1."""
    return LogIn(
        log_in.client_id,
        V311,
        log_in.user,
        log_in.password,
        log_in.keep_alive,
        log_in.receive_maximum,
        log_in.will,
        log_in.lasts,
    )


async def _look(
    address: Address, tls: ssl.SSLContext | None, log_in: LogIn, cluster: str, filters: dict[bytes, int]
) -> Looked:
    loop = asyncio.get_running_loop()
    hub = PubSub(PubSubSettings(max_retained=0), PubSubCounters())
    lock = lock_topic(cluster).encode()
    reader, listening = _Reader(hub, lock), _Listening()
    sessions = Sessions(hub, MqttSettings(), random.Random())  # nosec B311  # it chooses no client id
    spoken: list[Spoken] = []

    def say() -> None:
        for one in spoken:
            one.gather()
            one.say()

    def wake() -> None:
        loop.call_soon(say)

    outputs = Outputs(wake)
    spoken.append(Spoken(outputs, lambda: None))
    asks = LogIn(
        f"treecast-look-{secrets.token_hex(6)}", log_in.version, log_in.user, log_in.password, lasts=False
    )

    def make(edge: Edge, now: float) -> ClientSession:
        return ClientSession(asks, sessions, sessions, outputs, edge, now, AgentCounters())

    connection = await MqttConnection.connect(address, tls, make, [hub], listening)
    try:
        await _subscribed(connection, listening, {lock: 0}, again=False)
        await asyncio.sleep(_CALM)
        refused = await _subscribed(connection, listening, filters, again=True) if filters else ""
    finally:
        await connection.close()
    return Looked(5 if asks.version == V5 else 3, reader.holder, refused)


async def _subscribed(
    connection: MqttConnection, listening: _Listening, filters: dict[bytes, int], *, again: bool
) -> str:
    """Subscribes. Returns the filters that are refused. Raises ConnectionLost."""
    connection.session.subscribe(filters, again=again)
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await listening.answers.get()
    except TimeoutError:
        raise ConnectionLost("it does not answer SUBSCRIBE") from None
    if isinstance(answer, ConnectionLost):
        raise answer
    return missing(answer.refused)
