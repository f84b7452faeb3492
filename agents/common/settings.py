"""The settings that agents of all kinds share: the table [agent] of their TOML file.

The file is read whole, each value is checked, and a mistake is reported with its place.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.one_time_token import ONE_TIME
from treecast.middleware.api.trust_files import is_secured
from treecast.middleware.fabric.carriers.registry import Carriers
from treecast.middleware.fabric.carriers.relay import NAME as RELAY
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.carriers import AUTO, carriers_of
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.settings import FsyncPolicy

T = TypeVar("T")
UNIX = "unix:"


class SettingsError(Exception):
    """A setting is wrong. The text names its place and the correction."""


class SiteSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [agent] of an agent of any kind. `admin`: status and metrics over HTTP."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    data: str
    admin: str = "127.0.0.1:7690"
    log_level: str = "info"

    @property
    def admin_address(self) -> Address | None:
        return None if self.admin == OFF else address_of(self.admin, "agent.admin")


class AgentSettings(SiteSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [agent] of an agent that is a host of the fabric. Sizes in bytes.

    `name`: the site's, unique in the cluster. `join`: the control address of a daemon or coordinator.
    `join_token`: the token, or @FILE; for a secured cluster a one-time token, with which it joins at its
    first start. `fabric`: where other hosts reach this one, UDP and TCP. `spool_bytes`:
    what may wait here for other sites, and again what may wait here for the broker; beyond it nothing more is
    taken, and the broker and the other sites keep their messages. It also takes as much memory, twice.
    `carrier`: as of a daemon. `control`: where a network controller asks for receivers and sets rules; in a
    secured cluster a Unix socket.
    """

    join: str
    join_token: str
    fabric: str = "127.0.0.1:0"
    carrier: str = AUTO
    control: str = OFF
    spool_bytes: Annotated[int, Meta(ge=1 << 20)] = 256 << 20
    fsync: FsyncPolicy = FsyncPolicy.INTERVAL

    @property
    def is_secured(self) -> bool:
        """Whether the agent has joined a secured cluster."""
        return is_secured(Path(self.data))

    @property
    def one_time(self) -> str:
        """The one-time token of an agent that has yet to join by it; else empty. Raises SettingsError."""
        text = "" if self.is_secured else self._token_text()
        return text if text.startswith(ONE_TIME) else ""

    @property
    def cluster_id(self) -> str:
        """The cluster's id, once it is known: to a new agent of a secured cluster when it has joined. Raises
        SettingsError.
        """
        if self.is_secured:
            from treecast.middleware.api.trust import own_identity  # here: it loads `cryptography`

            try:
                return own_identity(Path(self.data)).cluster_id
            except TreecastError as error:
                raise SettingsError(error.detail) from error
        token = self.token
        return token.cluster_id if token is not None else ""

    def _token_text(self) -> str:
        text = self.join_token
        return read_secret(Path(text[1:]), "agent.join_token") if text.startswith("@") else text

    @property
    def token(self) -> JoinToken | None:
        """The token; None in a secured cluster. Raises SettingsError."""
        if self.is_secured or self.one_time:
            return None
        text = self._token_text()
        try:
            return JoinToken.parse(text)
        except TreecastError as error:
            raise SettingsError(f"agent.join_token: {error.detail}") from error

    @property
    def fabric_address(self) -> Address:
        return address_of(self.fabric, "agent.fabric")

    @property
    def control_target(self) -> str:
        """HOST:PORT or unix:PATH; empty: none. Raises SettingsError."""
        if self.control == OFF or self.control.startswith(UNIX):
            return self.control.removeprefix(OFF)
        if self.is_secured or self.one_time:
            raise SettingsError("agent.control: in a secured cluster it is a Unix socket: unix:PATH")
        return str(address_of(self.control, "agent.control"))

    @property
    def fabric_settings(self) -> FabricSettings:
        """The fabric's edge, with its carriers. Raises SettingsError for one that does not exist."""
        found = carriers_of(self.carrier)
        settings = FabricSettings(carriers=tuple(found), options=found)
        if RELAY in found:
            raise SettingsError(f"agent.carrier: {RELAY} is for hosts in zones, and an agent is in none")
        try:
            Carriers(settings)
        except ValueError as error:
            raise SettingsError(f"agent.carrier: {self.carrier!r} does not fit: {error}") from error
        return settings

    def check(self) -> None:
        """Raises SettingsError for what cannot be right."""
        _ = (self.token, self.admin_address, self.fabric_address, self.control_target, self.fabric_settings)


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS towards a broker: part of the table of each kind. `tls_ca`: default: the system's authorities."""

    tls: bool = False
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""

    def context_for(self, table: str) -> ssl.SSLContext | None:
        """Returns the context for connections to the broker; None: no TLS. Raises SettingsError."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
            if self.tls_certificate:
                context.load_cert_chain(self.tls_certificate, self.tls_key or None)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{table}.tls: the certificates cannot be read: {error}") from error
        return context


def read_file(path: Path, kind: type[T]) -> T:
    """Reads a TOML file as `kind`. Raises SettingsError."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {_plainer(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is no TOML: {error}") from error


def tables_of(path: Path) -> set[str]:
    """Returns the names of a file's tables; none if it cannot be read."""
    try:
        return set(msgspec.toml.decode(path.read_bytes()))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return set()


def _plainer(text: str) -> str:
    """Returns msgspec's reason with the place in the file's own spelling."""
    reason, at, place = text.partition(" - at `$.")
    return f"{place.rstrip('`')}: {reason}" if at else reason


def address_of(text: str, where: str) -> Address:
    """Returns an address. Raises SettingsError."""
    try:
        return Address.parse(text)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error


def read_secret(path: Path, where: str) -> str:
    """Returns the first line of a file. Raises SettingsError."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SettingsError(f"{where}: {path} cannot be read: {reason}") from error
