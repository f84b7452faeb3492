"""SaslHandshake and SaslAuthenticate: log-ins with PLAIN, SCRAM and OAUTHBEARER (KIP-43, 84, 152, 255)."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import Final

from treecast.middleware.broker.access import BearerError
from treecast.middleware.model.scram import NONCE_BYTES, ScramError
from treecast.shims.identified import secret_of
from treecast.shims.log_ins import Outcome

from .. import errors
from .. import versions as v
from ..log_in import OAUTHBEARER, PLAIN, LogIn, State
from .base import Context, Fields, Handler, Message, refuse_with_message

_WRONG: Final = "user name or password are wrong"
_NOT_NOW: Final = "SaslHandshake comes first, and once for each log-in"
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'  # RFC 7628, 3.2.2: nothing more is told
_LONGEST_BEARER: Final = 20_480  # bytes of a message of OAUTHBEARER
# gs2-header kvsep "auth=Bearer " token kvsep, and extensions, of which none counts (RFC 7628, 3.1). Each part
# is matched alone: one pattern of them all would try every way to share them out.
_KVSEP: Final = b"\x01"
_HEADER: Final = re.compile(rb"n,(?:a=([^,]*))?,")
_AUTH: Final = re.compile(rb"auth=Bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_EXTENSION: Final = re.compile(rb"[A-Za-z]+=.*", re.DOTALL)
_OPEN: Final = "nobody has to log in here: this host has no users; connect without SASL"


def sasl_handshake(ctx: Context, request: Message) -> Fields:
    """Chooses the mechanism. Without users there is none, as at a listener of Kafka without SASL."""
    log_in = ctx.log_in
    offered = list(log_in.mechanisms)
    if not log_in.identities.closed:
        return {"error_code": errors.ILLEGAL_SASL_STATE, "mechanisms": []}
    if request.mechanism not in offered:
        log_in.fail()
        return {"error_code": errors.UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}
    log_in.choose(request.mechanism, secrets.token_bytes(NONCE_BYTES))
    return {"error_code": errors.NONE, "mechanisms": offered}


def _refuse_handshake(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "mechanisms": []}


async def sasl_authenticate(ctx: Context, request: Message) -> Fields:
    log_in = ctx.log_in
    if log_in.state is not State.CHOSEN:
        return _failed(log_in, errors.ILLEGAL_SASL_STATE, _OPEN if not log_in.identities.closed else _NOT_NOW)
    if log_in.mechanism == PLAIN:
        return await _plain(ctx, log_in, request.auth_bytes)
    if log_in.mechanism == OAUTHBEARER:
        return await _bearer(ctx, log_in, request.auth_bytes)
    return await _scram(ctx, log_in, request.auth_bytes)


async def _plain(ctx: Context, log_in: LogIn, proof: bytes) -> Fields:
    given = _credentials(proof)
    if given is None:
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, "a malformed message of PLAIN")
    user, password = given
    secret = secret_of(log_in.identities, user, log_in.origin)
    outcome = await ctx.log_ins.checked(log_in.origin, user, password, secret)
    if outcome is Outcome.BUSY:
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, "too many log-ins wait: try again")
    if outcome is not Outcome.FITS or not log_in.succeed(user):
        log_in.refused(user, _WRONG)
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, _WRONG)
    return _passed(b"")


def _credentials(proof: bytes) -> tuple[str, bytes] | None:
    """Reads (user, password) of a message of PLAIN (RFC 4616). An authorization identity may be the user."""
    parts = proof.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2] or parts[0] not in (b"", parts[1]):
        return None
    try:
        return parts[1].decode(), parts[2]
    except UnicodeDecodeError:
        return None


async def _scram(ctx: Context, log_in: LogIn, message: bytes) -> Fields:
    exchange = log_in.exchange
    assert exchange is not None  # `choose` has made it
    try:
        if not exchange.began:
            return _passed(exchange.first(message))
        answer = exchange.final(message)
    except ScramError as error:
        log_in.refused(exchange.user, str(error))
        await asyncio.sleep(ctx.log_ins.wrong(log_in.origin, exchange.user))
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, str(error))
    if not log_in.succeed(exchange.user):
        log_in.refused(exchange.user, _WRONG)
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, _WRONG)
    return _passed(answer)


async def _bearer(ctx: Context, log_in: LogIn, message: bytes) -> Fields:
    """Checks a token. A refusal is told in two steps, as the mechanism has it."""
    if log_in.rejected:
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, _INVALID_TOKEN.decode())
    found, tokens, now = _presented(message), log_in.identities.tokens, time.time()
    if found is None or tokens is None:
        return _failed(log_in, errors.SASL_AUTHENTICATION_FAILED, "a malformed message of OAUTHBEARER")
    authorized, token = found
    try:
        bearer = tokens.check(token.decode(), now)
        if authorized not in (b"", bearer.user.encode()):
            raise BearerError("an authorization identity other than the token's user is not supported")
        if not log_in.succeed(bearer.user, bearer.until):
            raise BearerError(f"the token's user {bearer.user!r} may not log in here")
    except BearerError as error:
        log_in.rejected = str(error)
        log_in.refused("", str(error))
        await asyncio.sleep(ctx.log_ins.wrong(log_in.origin, ""))
        return _passed(_INVALID_TOKEN)
    return _passed(b"", max(int((bearer.until - now) * 1000), 1))


def _presented(message: bytes) -> tuple[bytes, bytes] | None:
    """Reads (authorization identity, token) of a message of OAUTHBEARER; None if it is malformed."""
    parts = message.split(_KVSEP) if len(message) <= _LONGEST_BEARER else []
    if len(parts) < 4 or parts[-2:] != [b"", b""]:
        return None
    header, pairs = _HEADER.fullmatch(parts[0]), parts[1:-2]
    given = [one for one in pairs if one[:5].lower() == b"auth="]
    if header is None or len(given) != 1 or not all(_EXTENSION.fullmatch(one) for one in pairs):
        return None
    token = _AUTH.fullmatch(given[0])
    return (header[1] or b"", token[1]) if token is not None else None


def _passed(answer: bytes, lifetime_ms: int = 0) -> Fields:
    return {
        "error_code": errors.NONE,
        "error_message": None,
        "auth_bytes": answer,
        "session_lifetime_ms": lifetime_ms,
    }


def _failed(log_in: LogIn, code: int, detail: str) -> Fields:
    log_in.fail()
    return {"error_code": code, "error_message": detail, "auth_bytes": b""}


HANDLERS = {
    v.SASL_HANDSHAKE: Handler(sasl_handshake, _refuse_handshake),
    v.SASL_AUTHENTICATE: Handler(sasl_authenticate, refuse_with_message),
}
