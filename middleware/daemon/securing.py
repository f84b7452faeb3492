"""`Secured`: the trust of a secured host while its daemon runs, and the authority where the coordinator is.

The member in it follows the authority and renews this host's certificate. Where the authority is, that is
renewed here, and the administrator's as well; also where a restored ledger does not know them any more, which
would keep the authority's own host and its administrator out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from treecast.middleware.api import certificates
from treecast.middleware.api.certificates import ADMINISTRATOR, HOST, Subject
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust import Trust
from treecast.middleware.api.trust_calls import Keys
from treecast.middleware.api.trust_files import (
    ADDRESS,
    ADMINISTRATOR_CERTIFICATE,
    ADMINISTRATOR_KEY,
    AUTHORITY,
    AUTHORITY_KEY,
    FOLDER,
    HOST_CERTIFICATE,
    HOST_KEY,
    make_folder,
)
from treecast.middleware.api.trust_member import RENEW_SECONDS, Member, join_patiently, own_addresses
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.trust.authority import Authority
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .certified import CertifiedAdmission
from .door import Door
from .listeners import StartError
from .settings import Settings
from .tokens import text_of

PLAIN: Final = ("kafka", "amqp", "mqtt", "stare")  # listeners without TLS
_SOON: Final = 30 * 86_400.0  # seconds before its end, from which it is a problem
_LOOK: Final = 3600.0  # seconds between looks at the administrator's certificate

_log = Log(__name__)


class Secured:
    """The trust of the host `name` whose data directory is `data`, from `open` to `close`."""

    def __init__(self, data: Path, name: str, fabric: str, users: Path) -> None:
        """`fabric`: the address of its fabric, for its certificate. `users`: this host's file of users, which
        hosts that join get a copy of. Raises StartError.
        """
        self._data = data
        self._users_file = users
        try:
            self.trust = Trust(data)
            self.authority = self._own_authority()
        except (TreecastError, OSError) as error:
            raise StartError(str(error)) from error
        if self.trust.identity.name != name:
            raise StartError(
                f"the certificate in {data / FOLDER} is of host {self.trust.identity.name!r}, and this is"
                f" {name!r}: start with --name {self.trust.identity.name}"
            )
        own = self._renew if self.authority is not None else None
        self.member = Member(self.trust, own_addresses(fabric), own)
        self._administrators: asyncio.Task[None] | None = None
        self.door = Door(self.trust, self.authority)
        self.trust.on_keys.append(self._changed)
        try:
            if self.authority is not None and self.authority.forgot(self.trust.identity):
                self._renew_own(self.authority)
        except (TreecastError, OSError) as error:
            raise StartError(str(error)) from error

    def _own_authority(self) -> Authority | None:
        if not (self._data / FOLDER / AUTHORITY_KEY).exists():
            return None
        made = Authority(self._data / FOLDER, time.time, self._users)
        made.catch_up(self.trust.keys)
        self.trust.learn(made.keys())
        made.on_keys.append(self.trust.learn)
        return made

    def _users(self) -> str:
        try:
            return self._users_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise TreecastError(
                Fault.STORAGE, f"the coordinator cannot read its file of users {self._users_file}"
            ) from error

    def _changed(self, keys: Keys) -> None:
        self.door.drop_expelled()

    # --- life

    async def open(self, target: str) -> None:
        """Begins to follow the authority at `target` (HOST:PORT,...), unless it is here. Returns when keys
        are known: a new host waits for them.
        """
        await self.member.open(target, follows=self.authority is None)
        if self.authority is not None:
            self._administrators = asyncio.create_task(self._renew_administrators(self.authority))

    def tell_address(self, control: str) -> None:
        """Notes where the authority answers, for `treecast token` and `treecast hosts`."""
        if self.authority is not None:
            write_private(self._data / FOLDER / ADDRESS, str(Address.parse(control).reachable).encode())

    async def close(self) -> None:
        await self.member.close()
        if self._administrators is not None:
            self._administrators.cancel()
            await asyncio.gather(self._administrators, return_exceptions=True)
        await self.door.close()

    async def _renew(self) -> None:
        assert self.authority is not None
        self._renew_own(self.authority)

    def _renew_own(self, authority: Authority) -> None:
        """Renews this host's certificate where the authority is."""
        own, folder = self.trust.identity, self.trust.folder
        subject = Subject(own.cluster_id, HOST, own.name, tuple(self.member.addresses), coordinator=True)
        asked = certificates.request((folder / HOST_KEY).read_bytes())
        write_private(folder / HOST_CERTIFICATE, authority.give_own(asked, subject, own))
        self.trust.read_again()

    async def _renew_administrators(self, authority: Authority) -> None:
        """Looks at the end of the administrator's certificate for ever."""
        while True:
            try:
                self._renew_administrator(authority)
            except (TreecastError, OSError) as error:
                _log.warning("administrator's certificate is not renewed", reason=error)
            await asyncio.sleep(_LOOK)

    def _renew_administrator(self, authority: Authority) -> None:
        """Renews the administrator's certificate, if it is here and was not expelled."""
        folder = self.trust.folder
        if not (folder / ADMINISTRATOR_KEY).exists() or not (folder / ADMINISTRATOR_CERTIFICATE).exists():
            return
        found = certificates.identity_of((folder / ADMINISTRATOR_CERTIFICATE).read_bytes())
        due = found.until - time.time() < RENEW_SECONDS and authority.holds(found)
        if not due and not authority.forgot(found):
            return
        asked = certificates.request((folder / ADMINISTRATOR_KEY).read_bytes())
        made = authority.give_own(asked, Subject(found.cluster_id, ADMINISTRATOR, found.name), found)
        write_private(folder / ADMINISTRATOR_CERTIFICATE, made)
        _log.info("administrator's certificate renewed", administrator=found.name)

    # --- for operators

    def problems(self, now: float) -> list[str]:
        """Returns what is wrong with this host's trust, each a sentence. `now`: seconds since 1970."""
        found = [self.trust.trouble, self.authority.trouble if self.authority is not None else ""]
        for what, until in self.ends():
            if until - now < _SOON:
                days = max(math.floor((until - now) / 86_400), 0)
                reason = f": {self.member.not_renewed}" if self.member.not_renewed else ""
                found.append(f"{what} ends in {days} days and is not renewed{reason}")
        return [text for text in found if text]

    def ends(self) -> list[tuple[str, float]]:
        """Returns the certificates of this host, and when each ends, in seconds since 1970."""
        folder, found = self.trust.folder, [("the certificate of this host", self.trust.identity.until)]
        for what, file in (
            ("the certificate of the authority", AUTHORITY),
            ("the certificate of the administrator", ADMINISTRATOR_CERTIFICATE),
        ):
            try:
                found.append((what, certificates.end_of((folder / file).read_bytes())))
            except (OSError, TreecastError):
                continue  # not every host has them; what cannot be used is said where it is used
        return found

    # --- the coordinator

    def client(self, target: str) -> CoordinatorClient:
        """Returns the client of the coordinator, which calls by this host's certificate."""
        return self.member.client(target)

    def admission(self, state: Callable[[], ClusterState | None]) -> CertifiedAdmission:
        """Returns who may call the coordinator in this daemon. `state`: its present one, which another
        replaces after a disk has refused a write; None before it is open.
        """

        def name_of(host_id: int) -> str:
            known = state()
            host = known.host_by_id(host_id) if known is not None else None
            return host.name if host is not None else ""

        return CertifiedAdmission(self.trust.identity.cluster_id, self.door.caller, name_of)


async def join_secured(data: Path, target: str, given: str, name: str, fabric: str, users: Path) -> None:
    """Joins a secured cluster by a one-time token. Waits while nobody answers. `users`: where this host's
    file of users is to be. Raises StartError.
    """
    if not target:
        raise StartError(
            "a one-time join token needs --join HOST:PORT, the control address of the coordinator"
        )
    try:
        await join_patiently(target, text_of(given), name, fabric, data, users)
    except TreecastError as error:
        raise StartError(f"--join {target}: {error}") from error
    except OSError as error:
        raise StartError(f"{make_folder(data)}: {error.strerror}") from error


def refuse_plain(settings: Settings) -> None:
    """Raises StartError if a face of a secured host is to listen for other machines without TLS."""
    for face in PLAIN:
        address: str = getattr(settings, face)
        if address != OFF and not is_loopback(address):
            instead = f"use --{face}-tls" if face != "stare" else "it has no TLS"
            raise StartError(
                f"--{face} {address}: a secured host serves other machines over TLS only; {instead}"
            )


def is_loopback(address: str) -> bool:
    host = Address.parse(address).host
    return host == "localhost" or host == "::1" or host.startswith("127.")
