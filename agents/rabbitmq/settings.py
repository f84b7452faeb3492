"""The settings of an agent beside a RabbitMQ server: the table [rabbitmq] of its TOML file."""

from __future__ import annotations

import ssl
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from treecast.agents.common.settings import AgentSettings, SettingsError, TlsSettings, address_of, read_secret
from treecast.middleware.api.discovery import Address


class DeclaredExchange(Struct, frozen=True, forbid_unknown_fields=True):
    """An exchange that the agent declares where it is missing."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    type: Literal["direct", "topic", "fanout", "headers"]
    durable: bool = True


class RabbitSettings(TlsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [rabbitmq].

    `exchanges`: names, with `*` and `?` as in file names: exchanges with such a name exist alike at all
    sites, and what is published to them reaches bindings of all sites. `policies`: names of policies, in the
    same spelling: exchanges to which one applies at this server are carried as well. `declare`: exchanges to
    make.
    `user_id`: what becomes of a message's user id at this site: `header` moves it to x-treecast-user-id,
    `keep` needs a user with the tag impersonator. `prefetch`: messages that the server has given out and that
    are not stored yet. `window`: publishes that wait for a confirm.
    """

    address: str = "127.0.0.1:5672"
    management: str = "http://127.0.0.1:15672"
    management_user: str = ""
    management_password: str = ""
    management_password_file: str = ""
    vhost: str = "/"
    user: str = "guest"
    password: str = ""
    password_file: str = ""
    exchanges: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    declare: tuple[DeclaredExchange, ...] = ()
    user_id: Literal["header", "keep"] = "header"
    prefetch: Annotated[int, Meta(ge=1, le=65535)] = 2000
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    poll_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 2.0
    heartbeat: Annotated[int, Meta(ge=0, le=600)] = 10

    @property
    def secret(self) -> str:
        """The password. Raises SettingsError."""
        if self.password_file:
            return read_secret(Path(self.password_file), "rabbitmq.password_file")
        return self.password or ("guest" if self.user == "guest" else "")

    @property
    def management_log_in(self) -> tuple[str, str]:
        """User and password for the management plugin: its own, or those of AMQP. Raises SettingsError."""
        if not self.management_user:
            return self.user, self.secret
        if self.management_password_file:
            path = Path(self.management_password_file)
            return self.management_user, read_secret(path, "rabbitmq.management_password_file")
        return self.management_user, self.management_password

    @property
    def mechanism(self) -> str:
        """How the agent logs in: by its certificate, if it has one and no password."""
        return "EXTERNAL" if self.tls_certificate and not self.secret else "PLAIN"

    @property
    def server(self) -> Address:
        return address_of(self.address, "rabbitmq.address")

    def wants(self, exchange: str) -> bool:
        """Whether an exchange is carried between sites."""
        return any(one.name == exchange for one in self.declare) or any(
            fnmatchcase(exchange, pattern) for pattern in self.exchanges
        )

    def names_policy(self, policy: str) -> bool:
        """Whether the exchanges of a policy are carried."""
        return any(fnmatchcase(policy, pattern) for pattern in self.policies)

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns the context for the connection to the server; None: no TLS. Raises SettingsError."""
        return self.context_for("rabbitmq")


class RabbitAgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    agent: AgentSettings
    rabbitmq: RabbitSettings

    def check(self) -> None:
        """Raises SettingsError for what cannot be right."""
        rabbit = self.rabbitmq
        if not rabbit.exchanges and not rabbit.declare and not rabbit.policies:
            raise SettingsError('rabbitmq.exchanges: nothing would be carried; name some, as in ["orders"]')
        self.agent.check()
        _ = (rabbit.server, rabbit.secret, rabbit.management_log_in, rabbit.tls_context())
