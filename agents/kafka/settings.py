"""The settings of an agent beside a Kafka cluster: the table [kafka] of its TOML file."""

from __future__ import annotations

import ssl
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from treecast.agents.common.settings import AgentSettings, SettingsError, TlsSettings, address_of, read_secret
from treecast.middleware.api.discovery import Address

from .log_in import LogIn, Mechanism

Names = tuple[str, ...]


class ClusterSettings(TlsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a Kafka cluster is reached, and how much is fetched from it at once. Sizes in bytes.

    `bootstrap`: brokers to ask first, HOST:PORT. `fetch_bytes`: of one fetch from one broker.
    `partition_bytes`: of it for one partition. `poll_seconds`: how often topics and leaders are looked for.
    """

    bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    fetch_bytes: Annotated[int, Meta(ge=1 << 16, le=64 << 20)] = 8 << 20
    partition_bytes: Annotated[int, Meta(ge=1 << 10, le=64 << 20)] = 1 << 20
    poll_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 1.0
    sasl: Literal["off"] | Mechanism = "off"
    user: str = ""
    password: str = ""
    password_file: str = ""

    def brokers_of(self, table: str) -> list[Address]:
        """Returns the brokers to ask first. Raises SettingsError, which names the table."""
        if not self.bootstrap:
            raise SettingsError(f'{table}.bootstrap: name a broker at least, as in ["kafka-1:9092"]')
        return [address_of(one, f"{table}.bootstrap") for one in self.bootstrap]

    def log_in_of(self, table: str) -> LogIn | None:
        """Returns how to log in; None: not at all. Raises SettingsError."""
        if self.sasl == "off":
            return None
        secret = self.password
        if self.password_file:
            secret = read_secret(Path(self.password_file), f"{table}.password_file")
        if not self.user or not secret:
            raise SettingsError(
                f"{table}.sasl: set {table}.user, and {table}.password_file or {table}.password, too"
            )
        return LogIn(self.sasl, self.user, secret)


class KafkaSettings(ClusterSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [kafka]. Names with `*` and `?` as in file names.

    `topics`: those that are followed; `not_topics`: and not these. `groups`, `transactional_ids`: whose owner
    is the Kafka cluster, at all hosts. `standby`: whether to wait while another agent of this name serves,
    instead of a refusal.
    """

    topics: Names = ()
    not_topics: Names = ()
    groups: Names = ("*",)
    transactional_ids: Names = ("*",)
    standby: bool = False

    @property
    def brokers(self) -> list[Address]:
        return self.brokers_of("kafka")

    @property
    def log_in(self) -> LogIn | None:
        """How to log in; None: not at all. Raises SettingsError."""
        return self.log_in_of("kafka")

    def follows(self, topic: str) -> bool:
        return matches(topic, self.topics) and not matches(topic, self.not_topics)

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns the context for connections to brokers; None: no TLS. Raises SettingsError."""
        return self.context_for("kafka")


class KafkaAgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    agent: AgentSettings
    kafka: KafkaSettings

    def check(self) -> None:
        """Raises SettingsError for what cannot be right."""
        if not self.kafka.topics:
            raise SettingsError(
                'kafka.topics: no topic is named, so nothing would be followed; name some, as in ["orders.*"]'
            )
        self.agent.check()
        _ = (self.kafka.brokers, self.kafka.log_in, self.kafka.tls_context())


def matches(name: str, patterns: Names) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
