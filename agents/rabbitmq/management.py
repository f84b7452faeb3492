"""Calls of the server's management plugin, which lists exchanges and bindings.

AMQP itself has no way to list either. Source: RabbitMQ's HTTP API, 3.8 and later.
"""

from __future__ import annotations

import re
import ssl
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

_SECONDS = 10.0


class ManagementError(Exception):
    """The management plugin gives no answer. The text says what to do."""


class ExchangeFound(Struct, frozen=True):
    """An exchange of the server."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class BindingFound(Struct, frozen=True):
    """A binding."""

    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Any] = {}


class PolicyFound(Struct, frozen=True, rename={"apply_to": "apply-to"}):
    """A policy. `pattern`: a regular expression on names; it may match anywhere."""

    name: str
    pattern: str
    apply_to: str = "all"

    def applies_to(self, exchange: str) -> bool:
        """Whether the policy's pattern has an exchange. Those of the server itself are nobody's."""
        if self.apply_to not in ("all", "exchanges") or not exchange or exchange.startswith("amq."):
            return False
        try:
            return re.search(self.pattern, exchange) is not None
        except re.error:  # the server's dialect knows more than this one
            return False


class Management:
    """Calls of one virtual host, until `close`."""

    def __init__(
        self, url: str, user: str, password: str, vhost: str, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls`: for a URL of https; default: the system's authorities."""
        self._url = url.rstrip("/")
        self._vhost = quote(vhost, safe="")
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        self._http = aiohttp.ClientSession(
            auth=aiohttp.BasicAuth(user, password),
            timeout=timeout,
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True),
        )

    async def exchanges(self) -> list[ExchangeFound]:
        """Returns all exchanges of the virtual host. Raises ManagementError."""
        found: list[ExchangeFound] = await self._get(f"exchanges/{self._vhost}", list[ExchangeFound])
        return found

    async def policies(self) -> list[PolicyFound]:
        """Returns the policies of the virtual host. Raises ManagementError."""
        found: list[PolicyFound] = await self._get(f"policies/{self._vhost}", list[PolicyFound])
        return found

    async def bindings(self, exchange: str) -> list[BindingFound]:
        """Returns the bindings from an exchange. Raises ManagementError."""
        name = quote(exchange, safe="")
        return await self._bindings(f"exchanges/{self._vhost}/{name}/bindings/source")

    async def bindings_of_queue(self, queue: str) -> list[BindingFound]:
        """Returns the bindings to a queue. Raises ManagementError."""
        return await self._bindings(f"queues/{self._vhost}/{quote(queue, safe='')}/bindings")

    async def _bindings(self, path: str) -> list[BindingFound]:
        """Returns the bindings at a path: none of what has just been deleted."""
        found: list[BindingFound] = await self._get(path, list[BindingFound], [])
        return found

    async def _get(self, path: str, kind: Any, missing: Any = None) -> Any:
        """Returns an answer as `kind`; `missing` if there is nothing at the path."""
        try:
            # the path is quoted already: a virtual host "/" has to stay %2F
            url = URL(f"{self._url}/api/{path}", encoded=True)
            async with self._http.get(url) as answer:
                body = await answer.read()
                if answer.status == 404 and missing is not None:
                    return missing
                if answer.status != 200:
                    raise ManagementError(_advice(self._url, answer.status))
                return msgspec.json.decode(body, type=kind)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ManagementError(
                f"{self._url} does not answer ({error or type(error).__name__}): enable it with"
                " `rabbitmq-plugins enable rabbitmq_management`, or correct rabbitmq.management"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManagementError(
                f"{self._url} answers with something else than RabbitMQ: {error}"
            ) from error

    async def close(self) -> None:
        await self._http.close()


def _advice(url: str, status: int) -> str:
    if status in (401, 403):
        return (
            f"{url} refuses the agent's user: give it the tag monitoring or management, as in"
            " `rabbitmqctl set_user_tags USER monitoring`"
        )
    if status == 404:
        return f"{url} does not know the virtual host: correct rabbitmq.vhost, or make it"
    return f"{url} answers with status {status}"
