"""Calls to the authority of a secured cluster: join, follow the keys, and an administrator's.

Each opens a TLS connection to the coordinator's control address. Raises TreecastError:
COORDINATOR_UNAVAILABLE if nobody answers, else the refusal.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final, TypeVar

from treecast.middleware.model.errors import Fault, TreecastError

from . import certificates
from . import trust_files as files
from .certificates import COORDINATOR_NAME
from .discovery import Address
from .one_time_token import OneTimeToken
from .private_file import write_private
from .trust import Trust
from .trust_calls import (
    ALPN,
    HEAD,
    LONGEST_ANSWER,
    Answer,
    Certificates,
    Follow,
    Hello,
    Join,
    Joined,
    Keys,
    Renew,
    Request,
    frame,
    length_of,
    read_answer,
)

CALL_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 8.0  # above what is between two signs of life

A = TypeVar("A", bound=Answer)


class Line:
    """One connection to the authority, from `open` to `close`."""

    def __init__(self, target: str, context: ssl.SSLContext) -> None:
        self._target = target
        self._context = context
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> Line:
        try:
            address = Address.parse(self._target)
        except ValueError as error:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"{self._target!r} is no address of a coordinator: {error}; look at --join",
            ) from error
        try:
            async with asyncio.timeout(CALL_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(
                    address.host, address.port, ssl=self._context, server_hostname=COORDINATOR_NAME
                )
        except ssl.SSLCertVerificationError as error:
            raise _refused(
                f"{self._target} is not this cluster's coordinator: {error.verify_message}"
            ) from error
        except TimeoutError as error:
            raise _away(self._target, "no answer") from error
        except (OSError, ssl.SSLError) as error:
            raise _away(self._target, _reason(error)) from error
        if self.tls.selected_alpn_protocol() != ALPN:
            self.close()
            raise _refused(f"there is no coordinator of a secured cluster at {self._target}: look at --join")
        return self

    @property
    def tls(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        return found

    async def ask(self, request: Request, kind: type[A]) -> A:
        """Returns the answer to a request. Raises its refusal."""
        self.send(request)
        return _of(await self.next(CALL_SECONDS), kind)

    def send(self, request: Request) -> None:
        self._writer.write(frame(request))

    async def next(self, seconds: float) -> Answer:
        """Returns the next answer. Raises COORDINATOR_UNAVAILABLE if none comes within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                length = length_of(await self._reader.readexactly(HEAD), LONGEST_ANSWER)
                return read_answer(await self._reader.readexactly(length))
        except asyncio.IncompleteReadError as error:
            raise _away(self._target, "the connection was closed") from error
        except TimeoutError as error:
            raise _away(self._target, "no answer") from error
        except (OSError, ssl.SSLError) as error:
            raise _away(self._target, _reason(error)) from error

    def close(self) -> None:
        self._writer.transport.abort()


async def join(
    target: str,
    token: OneTimeToken,
    name: str,
    addresses: list[str],
    data: Path,
    keep: Callable[[Joined], None] = lambda joined: None,
) -> Joined:
    """Makes the data directory's host one of the cluster: stores its key, its certificate and the authority.
    Returns the answer. `keep` stores more of it before the certificate, which makes it a secured host.

    The secret is told only to a coordinator that has proven to be the token's. After a broken connection the
    same call may be made again: the key is kept.
    """
    folder = files.make_folder(data)
    key = _own_key(folder)
    line = await Line(target, _unknown()).open()
    try:
        authority = (await line.ask(Hello(), Certificates)).authority
        leaf = line.tls.getpeercert(binary_form=True) or b""
        known = certificates.fingerprint(authority) == token.authority
        if not known or not certificates.is_coordinator(leaf, authority, time.time()):
            raise _refused(
                f"{target} is not the coordinator that made this token, or the clocks differ: look at --join"
            )
        asked = Join(token.id, token.secret, name, certificates.request(key), addresses)
        joined = await line.ask(asked, Joined)
    finally:
        line.close()
    if joined.authority != authority or certificates.identity_of(joined.certificate).name != name:
        raise _refused(f"{target} answered with another certificate than was asked for")
    keep(joined)
    _store(folder, joined)
    return joined


def _own_key(folder: Path) -> bytes:
    """Returns the key of this host, made and stored before anybody hears of it."""
    path = folder / files.HOST_KEY
    if not path.exists():
        write_private(path, certificates.new_key())
    return path.read_bytes()


def _store(folder: Path, joined: Joined) -> None:
    """Stores what was given. The certificate comes last: with it the host is a secured one."""
    write_private(folder / files.AUTHORITY, joined.authority)
    write_private(folder / files.HOST_CERTIFICATE, joined.certificate)


async def renew(target: str, trust: Trust, addresses: list[str]) -> None:
    """Takes a new certificate for the same key, with the one that still holds."""
    line = await Line(target, trust.calling(ALPN)).open()
    try:
        key = (trust.folder / files.HOST_KEY).read_bytes()
        joined = await line.ask(Renew(certificates.request(key), addresses), Joined)
    finally:
        line.close()
    write_private(trust.folder / files.HOST_CERTIFICATE, joined.certificate)
    trust.read_again()


async def follow(target: str, trust: Trust) -> AsyncGenerator[Keys | None, None]:
    """Yields the keys when they are others than those that the host has, and None for each sign that nothing
    has changed, until the connection ends.
    """
    line = await Line(target, trust.calling(ALPN)).open()
    try:
        line.send(Follow(trust.keys.generation))
        while True:
            answer = await line.next(SILENT_SECONDS)
            yield answer if isinstance(answer, Keys) else None
    finally:
        line.close()


async def administer(target: str, folder: Path, request: Request, kind: type[A]) -> A:
    """Makes a call with the administrator's certificate in `folder`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([ALPN])
    try:
        context.load_cert_chain(folder / files.ADMINISTRATOR_CERTIFICATE, folder / files.ADMINISTRATOR_KEY)
        context.load_verify_locations(folder / files.AUTHORITY)
    except (OSError, ssl.SSLError) as error:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"there is no administrator's certificate in {folder}: run this where `treecast init --secure`"
            " was run, as the daemon's user, with its --data",
        ) from error
    line = await Line(target, context).open()
    try:
        return await line.ask(request, kind)
    finally:
        line.close()


def _unknown() -> ssl.SSLContext:
    """Returns the context for a first call: the coordinator is recognised by the token, not by TLS."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols([ALPN])
    return made


def _of(answer: Answer, kind: type[A]) -> A:
    if not isinstance(answer, kind):
        raise TreecastError(Fault.INTERNAL, f"the authority answered with {type(answer).__name__}")
    return answer


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _away(target: str, reason: str) -> TreecastError:
    return TreecastError(Fault.COORDINATOR_UNAVAILABLE, f"nobody answers at {target}: {reason}")


def _refused(detail: str) -> TreecastError:
    return TreecastError(Fault.POLICY_VIOLATION, detail)
