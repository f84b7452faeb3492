"""The checks of `treecast agent doctor` at a RabbitMQ server: log-in, management, events, exchanges."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pamqp import commands

from .connection import AmqpConnection, CallRefused, ConnectionLost
from .management import ExchangeFound, Management, ManagementError, PolicyFound
from .session import Confirmed, Delivered, LogIn
from .settings import RabbitSettings

Found = tuple[str, str, str]  # what was checked; ok, slow or bad; the detail


class _Nobody:
    """Implements `connection.Listener` for one who only asks."""

    def delivered(self, run: Delivered) -> None: ...

    def confirmed(self, confirm: Confirmed) -> None: ...

    def closed(self, reason: str) -> None: ...

    def blocked(self, reason: str) -> None: ...

    def room(self) -> None: ...


def check_server(settings: RabbitSettings) -> Iterator[Found]:
    """Yields what was found at the server."""
    yield from asyncio.run(_check(settings))


async def _check(settings: RabbitSettings) -> list[Found]:
    found = [*await _log_in(settings)]
    management = Management(
        settings.management, *settings.management_log_in, settings.vhost, settings.tls_context()
    )
    try:
        policies = [one for one in await management.policies() if settings.names_policy(one.name)]
        found += _exchanges(settings, await management.exchanges(), policies)
    except ManagementError as error:
        found.append(("management", "bad", str(error)))
    finally:
        await management.close()
    return found


async def _log_in(settings: RabbitSettings) -> list[Found]:
    log_in = LogIn(
        settings.user, settings.secret, settings.vhost, "treecast agent doctor", settings.mechanism
    )
    try:
        connection = await AmqpConnection.connect(settings.server, settings.tls_context(), log_in, _Nobody())
    except ConnectionLost as error:
        return [("server", "bad", f"{settings.address}: {error}")]
    found = [("server", "ok", f"{' '.join(connection.product)} at {settings.address}")]
    try:
        await connection.open_channel(1)
        passive = commands.Exchange.Declare(exchange="amq.rabbitmq.event", passive=True)
        await connection.call(1, passive)
        found.append(("events", "ok", "changes of bindings are known at once"))
    except (CallRefused, ConnectionLost):
        advice = "`rabbitmq-plugins enable rabbitmq_event_exchange` makes them known at once"
        found.append(("events", "slow", f"changes of bindings are polled for; {advice}"))
    finally:
        await connection.close()
    return found


def _exchanges(
    settings: RabbitSettings, there: list[ExchangeFound], policies: list[PolicyFound]
) -> Iterator[Found]:
    wanted = [
        one
        for one in there
        if one.name and (settings.wants(one.name) or any(policy.applies_to(one.name) for policy in policies))
    ]
    yield "management", "ok", f"{settings.management} lists {len(there)} exchanges"
    if wanted:
        names = ", ".join(f"{one.name} ({one.type})" for one in wanted)
        yield "exchanges", "ok", names
    else:
        yield "exchanges", "slow", "none of the named ones exists here yet; other sites may bring them"
