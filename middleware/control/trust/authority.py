"""`Authority`: the authority of a secured cluster, in the daemon that has the coordinator.

It answers the calls of `api.trust_calls`, each by a change of the ledger that is on the disk before it is
answered. Those who follow the keys are woken after a change.

  <data>/trust/authority.crt, authority.key   the authority (mode 0600)
  <data>/trust/ledger.json                    what it has decided
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

import msgspec

from treecast.middleware.api import certificates
from treecast.middleware.api.certificates import HOST, Identity, Subject
from treecast.middleware.api.one_time_token import ID_BYTES, SECRET_BYTES, OneTimeToken, digest
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust_calls import (
    CALLERS,
    Alive,
    Answer,
    Certificates,
    CreateToken,
    Done,
    Expel,
    Follow,
    Hello,
    Hosts,
    Join,
    Joined,
    Keys,
    ListHosts,
    Renew,
    Request,
    Rotate,
    TokenCreated,
)
from treecast.middleware.api.trust_files import (
    AUTHORITY,
    AUTHORITY_KEY,
    HOST_CERTIFICATE,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from ..hosts import check_name
from . import ledger as ledgers
from .ledger import KEY_BYTES, Certificate, Ledger

LEDGER: Final = "ledger.json"
ALIVE_SECONDS: Final = 2.0  # between signs of life to those who follow
MOST_SECONDS: Final = 30 * 86_400.0  # of a token
RENEWED_FROM: Final = 200 * 86_400.0  # seconds before its end

_log = Log(__name__)


class Authority:
    """The authority whose files are in `folder`. `clock`: seconds since 1970."""

    def __init__(self, folder: Path, clock: Callable[[], float], users: Callable[[], str]) -> None:
        """`users`: returns the file of users, for hosts that join. Raises TreecastError, or OSError."""
        self._folder = folder
        self._clock = clock
        self._users = users
        self._certificate = (folder / AUTHORITY).read_bytes()
        self._key = (folder / AUTHORITY_KEY).read_bytes()
        self.ledger = ledgers.read_ledger((folder / LEDGER).read_bytes())
        self._changed: asyncio.Event = asyncio.Event()
        self.on_keys: list[Callable[[Keys], None]] = []
        self.trouble = ""  # for people

    def keys(self) -> Keys:
        return self.ledger.serving()

    def holds(self, identity: Identity) -> bool:
        """Whether a certificate of this authority is still accepted."""
        return identity.cluster_id == self.ledger.cluster_id and not self.ledger.is_expelled(
            serial_text(identity.serial)
        )

    def forgot(self, identity: Identity) -> bool:
        """Whether a certificate of this cluster is in no ledger: it was given since this one was stored."""
        return identity.cluster_id == self.ledger.cluster_id and not self.ledger.knows(
            serial_text(identity.serial)
        )

    def _not_held(self, identity: Identity) -> TreecastError:
        known = self.ledger.knows(serial_text(identity.serial))
        why = (
            "was expelled from this cluster"
            if known
            else "has a certificate that the authority does not know"
        )
        return _refused(f"{identity.words} {why}: it may join again with a new token")

    def catch_up(self, keys: Keys) -> None:
        """Takes what this host's own copy knows, and the ledger, which was restored, has forgotten."""
        if keys.generation > self.ledger.generation:
            known = ledgers.with_expelled(self.ledger, keys.expelled, self._clock())
            self._pass(known, keys.generation, "this host")

    def _pass(self, ledger: Ledger, heard: int, who: str) -> None:
        """Goes beyond a generation that this ledger lacks: it is an older state of the one that told it."""
        lost = heard - ledger.generation
        self._store(ledgers.caught_up(ledger, heard, secrets.token_bytes(KEY_BYTES), self._clock()))
        self.trouble = (
            f"the ledger of the authority was restored to an older state: {who} has heard of {lost} changes"
            " that it lacks. All tokens have ended. Hosts that joined since are refused and need new ones;"
            " expel again whom you expelled since: `treecast hosts list` shows all that it knows"
        )
        _log.error("ledger is an older state", heard_by=who, lost=lost, generation=self.ledger.generation)

    # --- calls

    def answer(self, request: Request, caller: Identity | None) -> Answer:
        """Answers a call. `caller`: who has proven to be it. Raises the refusal."""
        if caller is not None and not self.holds(caller):
            raise self._not_held(caller)
        if isinstance(request, Hello):
            return Certificates(self._certificate)
        if isinstance(request, Join):
            return self._join(request)
        identity = _need(caller, CALLERS[type(request)])
        if isinstance(request, Renew):
            return self._renew(request, identity)
        _log.info("call of an administrator", call=type(request).__name__, administrator=identity.name)
        return self._administer(request)

    def _administer(self, request: Request) -> Answer:
        if isinstance(request, CreateToken):
            return self.create_token(request.seconds, request.name)
        if isinstance(request, Expel):
            return self.expel(request.name)
        if isinstance(request, Rotate):
            self._store(ledgers.rotate(self.ledger, secrets.token_bytes(KEY_BYTES)))
            _log.info("key of segments changed", key=self.ledger.current)
            return Done(self.ledger.generation)
        if isinstance(request, ListHosts):
            return Hosts(self.ledger.issued(), self.ledger.generation, self.ledger.current)
        raise TreecastError(Fault.NOT_SUPPORTED, f"{type(request).__name__} is not answered once")

    async def follow(self, request: Follow, caller: Identity | None) -> AsyncGenerator[Answer, None]:
        """Yields the keys whenever they change, and signs of life, until the caller is expelled."""
        identity, generation = _need(caller, CALLERS[Follow]), request.generation
        if generation > self.ledger.generation and self.holds(identity):
            self._pass(self.ledger, generation, identity.words)
        while True:
            if not self.holds(identity):
                raise self._not_held(identity)
            changed = self._changed
            if self.ledger.generation != generation:
                generation = self.ledger.generation
                yield self.keys()
                continue
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield Alive()

    def create_token(self, seconds: float, name: str = "") -> TokenCreated:
        """Returns a new token. Raises INVALID_REQUEST."""
        if not 0 < seconds <= MOST_SECONDS:
            raise TreecastError(
                Fault.INVALID_REQUEST, "a token is valid for more than 0 s and at most 30 days"
            )
        if name:
            check_name(name)
        made = OneTimeToken(
            secrets.token_bytes(ID_BYTES),
            secrets.token_bytes(SECRET_BYTES),
            certificates.fingerprint(self._certificate),
        )
        now = self._clock()
        changed = ledgers.with_token(
            self.ledger, made.id.hex(), digest(made.secret), now + seconds, name, now
        )
        self._store(changed)
        return TokenCreated(made.format(), now + seconds)

    def expel(self, name: str) -> Done:
        """Refuses a host's certificates from now on, and changes the key of segments."""
        own = self._folder / HOST_CERTIFICATE
        if own.exists() and certificates.identity_of(own.read_bytes()).name == name:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"host {name} has the authority, without which no host could join or be expelled any more",
            )
        key = secrets.token_bytes(KEY_BYTES)
        changed, count = ledgers.expel(self.ledger, name, HOST, key, self._clock())
        self._store(changed)
        _log.warning("host expelled", host=name, certificates=count)
        return Done(self.ledger.generation, count)

    def _join(self, request: Join) -> Joined:
        check_name(request.name)
        # First of all: a stranger's request for a certificate is not even read.
        ledgers.known_token(self.ledger, request.token.hex(), digest(request.secret))
        key, now = certificates.digest_of_request(request.request), self._clock()
        addresses = certificates.checked_addresses(request.addresses)
        ledger = ledgers.used(
            self.ledger, request.token.hex(), digest(request.secret), request.name, key, now
        )
        ledgers.check_name(self.ledger, request.name, key, HOST)
        ledger = ledgers.without_key(ledger, request.name, HOST, key)
        subject = Subject(ledger.cluster_id, HOST, request.name, addresses)
        joined = self._give(ledger, request.request, subject)
        _log.info("host has joined", host=request.name)
        return msgspec.structs.replace(joined, users=self._users())

    def _renew(self, request: Renew, caller: Identity) -> Joined:
        left = caller.until - self._clock()
        if left > RENEWED_FROM:
            raise _refused(f"the certificate is valid for {left / 86_400:.0f} more days: renew it later")
        addresses = certificates.checked_addresses(request.addresses)
        subject = Subject(caller.cluster_id, HOST, caller.name, addresses)
        return self._give(self.ledger, request.request, subject, caller)

    def give_own(self, asked: bytes, subject: Subject, shown: Identity | None = None) -> bytes:
        """Returns a certificate for this machine itself: of the coordinator's host, or an administrator.
        `shown`: the one that it is to replace.
        """
        return self._give(self.ledger, asked, subject, shown).certificate

    def _give(self, ledger: Ledger, asked: bytes, subject: Subject, shown: Identity | None = None) -> Joined:
        """Signs, and stores before the certificate is given away. `shown`: the one that its holder uses."""
        now = self._clock()
        signed = certificates.sign(self._certificate, self._key, asked, subject, now)
        made = certificates.identity_of(signed)
        key = certificates.digest_of_request(asked)
        entered = ledgers.with_certificate(
            ledgers.without_ended(ledger, now),
            serial_text(made.serial),
            Certificate(made.name, made.role, made.until, key=key),
            serial_text(shown.serial) if shown is not None else "",
        )
        self._store(entered)
        return Joined(ledger.cluster_id, signed, self._certificate)

    def _store(self, ledger: Ledger) -> None:
        """Writes the ledger; then it counts, and those who follow the keys are told."""
        try:
            write_private(self._folder / LEDGER, ledgers.write_ledger(ledger))
        except OSError as error:
            raise TreecastError(Fault.STORAGE, f"the ledger of the authority: {error.strerror}") from error
        before, self.ledger = self.ledger, ledger
        if before.generation != ledger.generation:
            for tell in self.on_keys:
                tell(self.keys())
            self._changed.set()
            self._changed = asyncio.Event()


def serial_text(serial: int) -> str:
    """Returns a serial number as the ledger spells it."""
    return f"{serial:x}"


def found_authority(folder: Path, cluster_id: str, clock: Callable[[], float]) -> Authority:
    """Makes the authority of a new cluster in `folder`, which exists. Raises OSError."""
    key = certificates.new_key()
    write_private(folder / AUTHORITY_KEY, key)
    write_private(folder / AUTHORITY, certificates.make_authority(cluster_id, key, clock()))
    made = ledgers.new_ledger(cluster_id, secrets.token_bytes(KEY_BYTES))
    write_private(folder / LEDGER, ledgers.write_ledger(made))
    return Authority(folder, clock, str)


def _need(caller: Identity | None, role: str) -> Identity:
    if caller is None:
        raise _refused(f"this call needs the certificate of a {role} of this cluster")
    if caller.role != role:
        raise _refused(f"this call is for a {role}, and {caller.words} has made it")
    return caller


def _refused(detail: str) -> TreecastError:
    return TreecastError(Fault.POLICY_VIOLATION, detail)
