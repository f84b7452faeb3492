"""The settings of an agent beside a Mosquitto: the table [mosquitto] of its TOML file."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from treecast.agents.common.settings import AgentSettings, SettingsError, TlsSettings, address_of, read_secret
from treecast.middleware.api.discovery import Address

from .topics import BadRule, Rule


class MosquittoSettings(TlsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [mosquitto].

    `topics`: rules as in the bridge section of `mosquitto.conf`, the cluster being the remote broker
    (`topics.Rule`). `protocol`: `auto` falls back to 3.1.1 where the broker has no more. `hops`: whether
    messages for the broker get the user property of the loop guard. `receive_maximum`: messages that the
    broker has given out and that are not stored yet. `keep_alive`: seconds.
    """

    address: str = "127.0.0.1:1883"
    user: str = ""
    password: str = ""
    password_file: str = ""
    topics: tuple[str, ...] = ()
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    hops: bool = True
    receive_maximum: Annotated[int, Meta(ge=1, le=65535)] = 1000
    keep_alive: Annotated[int, Meta(ge=0, le=3600)] = 10

    @property
    def secret(self) -> str:
        """The password. Raises SettingsError."""
        if self.password_file:
            return read_secret(Path(self.password_file), "mosquitto.password_file")
        return self.password

    @property
    def server(self) -> Address:
        return address_of(self.address, "mosquitto.address")

    @property
    def rules(self) -> list[Rule]:
        """The rules. Raises SettingsError."""
        try:
            return [Rule.parse(text) for text in self.topics]
        except BadRule as error:
            raise SettingsError(f"mosquitto.topics: {error}") from error

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns the context for the connection to the broker; None: no TLS. Raises SettingsError."""
        return self.context_for("mosquitto")


class MosquittoAgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    agent: AgentSettings
    mosquitto: MosquittoSettings

    def check(self) -> None:
        """Raises SettingsError for what cannot be right."""
        if not self.mosquitto.rules:
            raise SettingsError(
                'mosquitto.topics: nothing would be carried; name some, as in ["sensors/# both 1"]'
            )
        self.agent.check()
        _ = (self.mosquitto.server, self.mosquitto.secret, self.mosquitto.tls_context())
