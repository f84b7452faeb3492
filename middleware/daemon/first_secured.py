"""`treecast init --secure`: the files of a secured cluster's first host, while its daemon is stopped."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final

import msgspec

from treecast.middleware.api import certificates
from treecast.middleware.api.certificates import ADMINISTRATOR, HOST, Subject
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust_files import (
    ADMINISTRATOR_CERTIFICATE,
    ADMINISTRATOR_KEY,
    HOST_CERTIFICATE,
    HOST_KEY,
    is_secured,
    make_folder,
)
from treecast.middleware.broker import DataDirectory, Meta
from treecast.middleware.broker.access import Content, User
from treecast.middleware.control.hosts import check_name
from treecast.middleware.control.trust.authority import found_authority
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import new_cluster_id
from treecast.middleware.model.scram import SALT_BYTES, SHA256, SHA512, verifier
from treecast.middleware.storage.disk import make_directory

from .tokens import kept_token
from .users_file import FILE, change_users

CONFIGS: Final = ("treecast.toml", "secured.toml")  # the first that is free
_PORTS: Final = {"kafka_tls": 9093, "mqtt_tls": 8883, "amqp_tls": 5671, "control": 7671, "fabric": 7672}


def make_secured(data: Path, name: str, address: str, administrator: str, password: bytes) -> Path:
    """Makes the authority, this host's certificate, the first administrator, and a configuration, whose path
    it returns. `address`: of this machine, at which hosts and applications reach it.

    Raises TreecastError, or OSError. A cluster that exists keeps its id, and what it holds.
    """
    check_name(name)
    if is_secured(data):
        raise TreecastError(Fault.INVALID_REQUEST, f"{data} is of a secured host already")
    path = _free_configuration(data)
    make_directory(str(data))
    with DataDirectory.held(data) as known:
        if known is not None:
            _check_first(data, known, name)
        _make(data, _cluster_id(data, known), name, address, administrator, password)
        _configure(path, data, name, address)
        return path


def _free_configuration(data: Path) -> Path:
    """Returns the file of the configuration, which is not there yet. Raises INVALID_REQUEST."""
    free = [data / one for one in CONFIGS if not (data / one).exists()]
    if not free:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"the settings of a secured host would replace one of {' and '.join(CONFIGS)} in {data}: move"
            f" {CONFIGS[-1]} away",
        )
    return free[0]


def _check_first(data: Path, known: Meta, name: str) -> None:
    """Raises INVALID_REQUEST unless the directory is of host `name`, alone or with the coordinator."""
    member = known.membership
    if member is not None and member.coordinator:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"{data} is of host {member.name}, whose cluster has its coordinator at"
            f" {member.coordinator}: run `treecast init --secure` in the data directory of the daemon there,"
            f" while all hosts are stopped; {member.name} then joins with `treecast up --join-token`,"
            " by a token of its own",
        )
    if member is not None and member.name != name:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"{data} is of host {member.name!r}, not {name!r}: give --name {member.name}",
        )


def _cluster_id(data: Path, known: Meta | None) -> str:
    if known is not None:
        return known.cluster_id
    token = kept_token(data)
    return token.cluster_id if token is not None else new_cluster_id(secrets.randbits(128))


def _make(data: Path, cluster_id: str, name: str, address: str, administrator: str, password: bytes) -> None:
    folder = make_folder(data)
    authority = found_authority(folder, cluster_id, time.time)
    # Before the host's certificate, which makes it a secured host: that never serves without users.
    change_users(data / FILE, lambda content: _with(content, administrator, password))
    for key, certificate, subject in (
        (ADMINISTRATOR_KEY, ADMINISTRATOR_CERTIFICATE, Subject(cluster_id, ADMINISTRATOR, administrator)),
        (HOST_KEY, HOST_CERTIFICATE, Subject(cluster_id, HOST, name, _numbers(address), coordinator=True)),
    ):
        made = certificates.new_key()
        write_private(folder / key, made)
        write_private(folder / certificate, authority.give_own(certificates.request(made), subject))


def _numbers(address: str) -> tuple[str, ...]:
    return certificates.checked_addresses([address]) if address else ()


def _with(content: Content, name: str, password: bytes) -> Content:
    made = [verifier(one, password, secrets.token_bytes(SALT_BYTES)) for one in (SHA256, SHA512)]
    user = User(name, {one.mechanism: one for one in made}, admin=True)
    return msgspec.structs.replace(content, users={**content.users, name: user})


def _configure(path: Path, data: Path, name: str, address: str) -> None:
    """Writes the settings of this host: TLS for other machines, and plain faces on loopback alone."""
    where = address or "127.0.0.1"
    host = f"[{where}]" if ":" in where else where
    lines = [f'name = "{name}"', f'data = "{data}"', ""]
    lines += [f'{face} = "{host}:{port}"' for face, port in _PORTS.items()]
    for face in ("kafka", "mqtt", "amqp"):
        lines += [
            f'{face}_tls_certificate = "{make_folder(data) / HOST_CERTIFICATE}"',
            f'{face}_tls_key = "{make_folder(data) / HOST_KEY}"',
        ]
    write_private(path, ("\n".join(lines) + "\n").encode())
