"""`Trust`: what a secured host knows of its cluster: its certificate, whose else hold, the keys of segments.

It makes the TLS contexts of both ends of connections between hosts, and decides who the other end is. Keys
are stored before they are used, so that a host starts with them while the coordinator is away.

A certificate is accepted that the authority knows, and that this host never heard to be expelled: what an
authority forgets whose ledger was restored to an older state, hosts still know.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
import msgspec

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from . import trust_files as files
from .certificates import COORDINATOR_NAME, HOST, HOST_NAME, Identity, identity_of, identity_of_peer
from .join_token import JoinToken
from .private_file import Stamp, stamp_of, write_private
from .rpc import Secured
from .trust_calls import Keys

_log = Log(__name__)
_NO_KEYS = Keys(0, 0, {})
_MOST_EXPELLED: Final = 20_000  # serial numbers that a host keeps of those that the authority tells no longer


class Trust:
    """The trust of the host whose data directory is `data`. Raises TreecastError for unusable files."""

    def __init__(self, data: Path) -> None:
        self.folder = data / files.FOLDER
        self.identity = self._own()
        self.keys = self._kept()
        self._expelled, self._known = _serials(self.keys.expelled), self._known_of(self.keys)
        self.on_keys: list[Callable[[Keys], None]] = []
        self.on_renewed: list[Callable[[], None]] = []
        self.trouble = ""  # for people: why this host is not up to date, or no part of the cluster any more
        self._seen = self._stamp()
        self._server = self._made_server()
        self._client = self._made_client()
        self._living = [self._server, self._client]  # contexts that listeners and others hold for long

    def _own(self) -> Identity:
        return own_identity(self.folder.parent)

    def _kept(self) -> Keys:
        try:
            return msgspec.msgpack.decode((self.folder / files.KEYS).read_bytes(), type=Keys)
        except FileNotFoundError:
            return _NO_KEYS
        except (OSError, msgspec.MsgspecError) as error:
            raise _unusable(self.folder, f"{files.KEYS}: {error}") from error

    # --- keys

    @property
    def token(self) -> JoinToken:
        """The current key, in the form from which keys for each use are derived. Raises
        COORDINATOR_UNAVAILABLE if none has been heard yet.
        """
        return self.key_of(self.keys.current)

    def key_of(self, number: int) -> JoinToken:
        key = self.keys.keys.get(number)
        if key is None:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, "the coordinator has told no key of segments yet"
            )
        return JoinToken(self.identity.cluster_id, number, key)

    def learn(self, keys: Keys) -> None:
        """Takes what the authority tells, stores it, and tells its users. Older ones change nothing."""
        if keys.generation <= self.keys.generation:
            return
        if keys.current not in keys.keys or any(len(key) != 32 for key in keys.keys.values()):
            raise TreecastError(Fault.INVALID_REQUEST, "the authority told keys of a wrong length")
        keys = self._with_kept(keys)
        try:
            write_private(self.folder / files.KEYS, msgspec.msgpack.encode(keys))
        except OSError as error:
            _log.error("keys not stored: a restart without the coordinator lacks them", error=error.strerror)
        before, self.keys = self._expelled, keys
        self._expelled, self._known = _serials(keys.expelled), self._known_of(keys)
        if self._expelled - before:
            _log.warning("certificates are refused from now on", count=len(self._expelled - before))
        for tell in list(self.on_keys):
            tell(keys)

    def _with_kept(self, keys: Keys) -> Keys:
        """Returns what was told, with those of whose expulsion this host has heard before."""
        told = set(keys.expelled)
        kept = [one for one in self.keys.expelled if one not in told]
        return msgspec.structs.replace(keys, expelled=[*kept, *keys.expelled][-_MOST_EXPELLED:])

    def _known_of(self, keys: Keys) -> frozenset[int] | None:
        return _serials(keys.known) if keys.known is not None else None

    # --- who the other end is

    def holder(self, tls: object) -> Identity | None:
        """Returns who is at the other end of a TLS connection; None without a certificate of this cluster."""
        found = identity_of_peer(tls.getpeercert()) if hasattr(tls, "getpeercert") else None
        return found if found is not None and found.cluster_id == self.identity.cluster_id else None

    def accepts(self, identity: Identity) -> bool:
        """Whether the authority knows the certificate, and its holder was never expelled."""
        known = self._known is None or identity.serial in self._known
        return known and identity.serial not in self._expelled

    # --- TLS

    @property
    def server(self) -> ssl.SSLContext:
        """For connections from other hosts, which have to give a certificate."""
        return self._server

    @property
    def client(self) -> ssl.SSLContext:
        """For connections to other hosts. Who answers is looked at in the certificate (`holder`)."""
        return self._client

    def door(self, protocols: list[str]) -> ssl.SSLContext:
        """For a listener that also takes callers without a certificate, who are told so by the protocol."""
        made = self._made_server()
        made.verify_mode = ssl.CERT_OPTIONAL
        made.set_alpn_protocols(protocols)
        self._living.append(made)
        return made

    def calling(self, protocol: str) -> ssl.SSLContext:
        """For calls to the coordinator."""
        made = self._made_client()
        made.check_hostname = True
        made.set_alpn_protocols([protocol])
        return made

    def look(self, *, again: bool = False) -> bool:
        """Reads this host's certificate again if its file has changed, or `again`. Returns whether it has.

        Raises TreecastError if the files cannot be used: what was read before holds.
        """
        stamp = self._stamp()
        if stamp == self._seen and not again:
            return False
        self._seen = stamp
        self.read_again()
        return True

    def _stamp(self) -> tuple[Stamp | None, ...]:
        names = (files.HOST_CERTIFICATE, files.HOST_KEY, files.AUTHORITY)
        return tuple([stamp_of(self.folder / one) for one in names])

    def read_again(self) -> None:
        """Reads this host's certificate again, after it was renewed. New connections use it, also those of
        listeners that are open; if it is another one, whoever holds credentials of its own is told. Raises
        TreecastError.
        """
        found = self._own()
        if (found.cluster_id, found.name) != (self.identity.cluster_id, self.identity.name):
            raise _unusable(self.folder, f"{files.HOST_CERTIFICATE} is of {found.words} now")
        self._made_server()  # a certificate that does not fit its key is found here, and not in living ones
        renewed = found.serial != self.identity.serial
        self.identity, self._seen = found, self._stamp()
        for one in self._living:
            self._load(one)
        if renewed:  # by SIGHUP the same is read again
            for tell in list(self.on_renewed):
                tell()

    def _made_server(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.options |= ssl.OP_NO_RENEGOTIATION
        return self._with_files(made)

    def _made_client(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        return self._with_files(made)

    def _with_files(self, made: ssl.SSLContext) -> ssl.SSLContext:
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.verify_mode = ssl.CERT_REQUIRED
        self._load(made)
        return made

    def _load(self, made: ssl.SSLContext) -> None:
        try:
            made.load_cert_chain(self.folder / files.HOST_CERTIFICATE, self.folder / files.HOST_KEY)
            made.load_verify_locations(self.folder / files.AUTHORITY)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(self.folder, str(error)) from error

    def channel_credentials(self) -> Secured:
        """Returns gRPC's credentials and options for calls to the coordinator."""
        return channel_credentials(self.folder, files.HOST_CERTIFICATE, files.HOST_KEY, COORDINATOR_NAME)


def own_identity(data: Path) -> Identity:
    """Returns who the host of a data directory is, by its certificate. Raises INVALID_REQUEST."""
    folder = data / files.FOLDER
    try:
        found = identity_of((folder / files.HOST_CERTIFICATE).read_bytes())
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if found.role != HOST:
        raise _unusable(folder, f"{files.HOST_CERTIFICATE} is of {found.words}")
    return found


def caller_credentials(folder: Path) -> Secured:
    """Returns credentials for calls to any host by the certificates in `folder`. Raises INVALID_REQUEST."""
    if (folder / files.ADMINISTRATOR_CERTIFICATE).exists():
        own = (files.ADMINISTRATOR_CERTIFICATE, files.ADMINISTRATOR_KEY)
    else:
        own = (files.HOST_CERTIFICATE, files.HOST_KEY)
    return channel_credentials(folder, *own, HOST_NAME)


def channel_credentials(folder: Path, certificate: str, key: str, name: str) -> Secured:
    """Returns gRPC's credentials from files in `folder`, and options with the name that the other end has to
    have in its certificate. Raises INVALID_REQUEST for unusable files.
    """
    try:
        made = grpc.ssl_channel_credentials(
            (folder / files.AUTHORITY).read_bytes(),
            (folder / key).read_bytes(),
            (folder / certificate).read_bytes(),
        )
    except OSError as error:
        raise _unusable(folder, f"{error.filename}: {error.strerror}") from error
    return made, (("grpc.ssl_target_name_override", name),)


def _serials(texts: list[str]) -> frozenset[int]:
    return frozenset(int(one, 16) for one in texts)


def _unusable(folder: Path, reason: str) -> TreecastError:
    return TreecastError(
        Fault.INVALID_REQUEST,
        f"the certificates in {folder} cannot be used: {reason}; restore them, or remove the folder and join"
        " again with a new token",
    )
